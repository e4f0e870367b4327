"""cluster.yaml through Ray's launcher against moto: what AWS is asked for, and what stays shut."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sweep.cluster.cluster_yaml import read
from sweep.cluster.route import find_route
from tests.support.servers.clouds import REGION, Cloud, Request, enter
from trainables.errors import Misuse
from trainables.plain import Json

ROOT = Path(__file__).parents[3]
ACCOUNT = ROOT / "docs/cluster/aws-account.yaml"
SSH_FROM = "203.0.113.7/32"
SSH_KEY = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ2kh0m0ycW6ZbPrgAHc2M5h7Nr1N9LQ0Wv0Q9c0cM1l me@laptop"
)
WORLD = {"0.0.0.0/0", "::/0"}
WORKERS = {"l4": ("g6.2xlarge", 1), "a10g": ("g5.12xlarge", 4), "h100": ("p5.48xlarge", 8)}

# moto makes no key pairs by CloudFormation; it starts machines with any.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Tried to parse AWS..EC2..KeyPair"),
    pytest.mark.long("the file's cloud starts, and makes the whole account, with its first test"),
]


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    """An account with what aws-account.yaml makes in it."""
    cloud = Cloud()
    with pytest.MonkeyPatch.context() as patch:
        enter(cloud, patch)
        vpc = cloud.client("ec2").describe_vpcs()["Vpcs"][0]["VpcId"]
        cloud.client("cloudformation").create_stack(
            StackName="descent-sweep",
            TemplateBody=ACCOUNT.read_text(encoding="utf-8"),
            Parameters=[
                {"ParameterKey": "Vpc", "ParameterValue": vpc},
                {"ParameterKey": "SshFrom", "ParameterValue": SSH_FROM},
                {"ParameterKey": "SshKey", "ParameterValue": SSH_KEY},
            ],
            Capabilities=["CAPABILITY_NAMED_IAM"],
        )
        yield cloud
    cloud.close()


@pytest.fixture(scope="module")
def outputs(cloud: Cloud) -> dict[str, str]:
    """What the stack says belongs into cluster.yaml."""
    (stack,) = cloud.client("cloudformation").describe_stacks()["Stacks"]
    return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


@pytest.fixture(scope="module")
def plain(
    cloud: Cloud, outputs: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Json]:
    """cluster.yaml, filled in; moto has no images of NVIDIA's."""
    text = (ROOT / "cluster.yaml").read_text(encoding="utf-8")
    text = text.replace("sg-FILL-IN", outputs["SecurityGroup"])
    text = text.replace("s3://FILL-IN/sweeps", outputs["Storage"])
    image = cloud.client("ec2").describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    path = tmp_path_factory.mktemp("aws") / "cluster.yaml"
    path.write_text(re.sub(r"resolve:ssm:\S+", image, text), encoding="utf-8")
    return read(path)


class Launcher:
    """What `ray up` asks of AWS with a config that is ready: nodes, of which none is spoken to."""

    def __init__(self, cloud: Cloud, config: dict[str, Json]) -> None:
        from ray.autoscaler._private.providers import _get_node_provider

        self.cloud, self.config = cloud, config
        self.provider = _get_node_provider(config["provider"], config["cluster_name"])

    def start(self, name: str, count: int = 1) -> dict[str, str]:
        """Start nodes of one type; what was asked of RunInstances."""
        from ray.autoscaler import tags

        kind = "head" if name == self.config["head_node_type"] else "worker"
        self.cloud.requests.clear()
        self.provider.create_node(
            copy.deepcopy(self.config["available_node_types"][name]["node_config"]),
            {
                tags.TAG_RAY_NODE_KIND: kind,
                tags.TAG_RAY_USER_NODE_TYPE: name,
                tags.TAG_RAY_NODE_NAME: f"ray-{self.config['cluster_name']}-{kind}",
                tags.TAG_RAY_NODE_STATUS: "uninitialized",
                tags.TAG_RAY_LAUNCH_CONFIG: "hash",
            },
            count,
        )
        launches = [r.form for r in self.cloud.requests if r.action == "RunInstances"]
        assert len(launches) <= 1
        return launches[0] if launches else {}

    def stop(self) -> None:
        self.provider.terminate_nodes(self.provider.non_terminated_nodes({}))


@pytest.fixture(scope="module")
def asked_before(cloud: Cloud) -> list[Request]:
    """What Ray asked of AWS before the first node; filled by ``config``."""
    return []


@pytest.fixture(scope="module")
def config(cloud: Cloud, plain: dict[str, Json], asked_before: list[Request]) -> dict[str, Json]:
    """cluster.yaml as Ray prepares it, with all that it looks up and makes in the account."""
    from ray.autoscaler._private.aws import config, utils
    from ray.autoscaler._private.commands import _bootstrap_config

    for cache in (utils.resource_cache, utils.client_cache, config._get_subnets_or_die):
        cache.cache_clear()  # other tests may have had another cloud
    cloud.requests.clear()
    ready: dict[str, Json] = _bootstrap_config(copy.deepcopy(plain), no_config_cache=True)
    asked_before += cloud.requests
    return ready


@pytest.fixture
def launcher(cloud: Cloud, config: dict[str, Json]) -> Iterator[Launcher]:
    """No node is there; those that the test starts end with it."""
    launcher = Launcher(cloud, config)
    yield launcher
    ids = [instance["InstanceId"] for instance in instances(cloud).values()]
    if ids:
        cloud.client("ec2").terminate_instances(InstanceIds=ids)


def instances(cloud: Cloud) -> dict[str, Json]:
    """Instances that have not ended, by the name of their type in cluster.yaml."""
    alive = {"Name": "instance-state-name", "Values": ["pending", "running", "stopped"]}
    reservations = cloud.client("ec2").describe_instances(Filters=[alive])["Reservations"]
    found = [instance for r in reservations for instance in r["Instances"]]
    return {
        next(t["Value"] for t in i["Tags"] if t["Key"] == "ray-user-node-type"): i for i in found
    }


def open_to(cloud: Cloud, groups: set[str]) -> set[tuple[str, int | None, int | None, str]]:
    """Who may reach what in these groups: protocol, ports, and an address range or a group."""
    found = cloud.client("ec2").describe_security_groups(GroupIds=sorted(groups))
    rules = [rule for group in found["SecurityGroups"] for rule in group["IpPermissions"]]
    return {
        (rule["IpProtocol"], rule.get("FromPort"), rule.get("ToPort"), source)
        for rule in rules
        for source in [r["CidrIp"] for r in rule.get("IpRanges", [])]
        + [r["CidrIpv6"] for r in rule.get("Ipv6Ranges", [])]
        + [r["GroupId"] for r in rule.get("UserIdGroupPairs", [])]
    }


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_head_is_asked_for_on_demand_without_a_role_that_may_do_everything(
    launcher: Launcher, outputs: dict[str, str]
) -> None:
    asked = launcher.start("head")
    assert asked["InstanceType"] == "m6i.xlarge"
    assert not [name for name in asked if name.startswith("InstanceMarketOptions")]
    assert asked["IamInstanceProfile.Name"] == "descent-sweep-head"
    assert asked["SecurityGroupId.1"] == outputs["SecurityGroup"]
    assert asked["KeyName"] == template()["Parameters"]["KeyName"]["Default"]
    assert "SecurityGroupId.2" not in asked
    assert (asked["MinCount"], asked["MaxCount"]) == ("1", "1")


@pytest.mark.parametrize("name", WORKERS)
def test_workers_are_asked_for_as_spot_instances(
    cloud: Cloud, launcher: Launcher, outputs: dict[str, str], name: str
) -> None:
    asked = launcher.start(name, 2)
    assert asked["InstanceType"] == WORKERS[name][0]
    assert asked["InstanceMarketOptions.MarketType"] == "spot"
    assert asked["IamInstanceProfile.Name"] == "descent-sweep-worker"
    assert asked["SecurityGroupId.1"] == outputs["SecurityGroup"]
    assert (asked["MinCount"], asked["MaxCount"]) == ("1", "2")
    assert instances(cloud)[name]["InstanceLifecycle"] == "spot"


@pytest.mark.parametrize("name", ["head", *WORKERS])
def test_every_node_wants_a_session_token_for_metadata_and_encrypts_its_disk(
    launcher: Launcher, name: str
) -> None:
    asked = launcher.start(name)
    assert asked["MetadataOptions.HttpTokens"] == "required"
    assert asked["MetadataOptions.HttpPutResponseHopLimit"] == "1"
    assert asked["BlockDeviceMapping.1.Ebs.Encrypted"] == "true"


def test_ray_knows_the_gpus_of_every_type_and_counts_on_none_of_the_head(
    config: dict[str, Json],
) -> None:
    resources = {name: kind["resources"] for name, kind in config["available_node_types"].items()}
    assert resources["head"]["CPU"] == resources["head"]["GPU"] == 0
    assert {name: resources[name]["GPU"] for name in WORKERS} == {
        name: gpus for name, (_, gpus) in WORKERS.items()
    }


def test_ray_makes_and_opens_nothing_in_the_account(
    config: dict[str, Json], asked_before: list[Request]
) -> None:
    assert asked_before
    assert not [r.action for r in asked_before if not re.match(r"Describe|Get|List", r.action)]


def test_nothing_is_open_to_the_world(
    cloud: Cloud, launcher: Launcher, outputs: dict[str, str]
) -> None:
    for name in ("head", *WORKERS):
        launcher.start(name)
    groups = {g["GroupId"] for i in instances(cloud).values() for g in i["SecurityGroups"]}
    group = outputs["SecurityGroup"]
    assert groups == {group}
    assert open_to(cloud, groups) == {("tcp", 22, 22, SSH_FROM), ("-1", None, None, group)}


def test_down_keeps_the_disk_of_the_head_for_the_next_up(cloud: Cloud, launcher: Launcher) -> None:
    """Workers are not looked at: moto gives a spot instance no request, by which Ray tells them."""
    launcher.start("head")
    launcher.stop()
    kept = instances(cloud)["head"]
    assert kept["State"]["Name"] == "stopped"
    assert launcher.start("head") == {}  # the same instance again, no other
    again = instances(cloud)["head"]
    assert again["State"]["Name"] == "running"
    assert again["InstanceId"] == kept["InstanceId"]


# --- why yaml_aws.py checks: what Ray does without these lines ---------------------------------


def bootstrapped(cloud: Cloud, plain: dict[str, Json]) -> Launcher:
    """As ``config``, without looking up what every type of instance has."""
    from ray.autoscaler._private.aws.config import bootstrap_aws
    from ray.autoscaler._private.util import prepare_config

    return Launcher(cloud, bootstrap_aws(prepare_config(plain)))


def test_without_our_security_group_ray_opens_ssh_to_the_world(
    cloud: Cloud, plain: dict[str, Json], launcher: Launcher
) -> None:
    plain = copy.deepcopy(plain)
    for node_type in plain["available_node_types"].values():
        node_type["node_config"].pop("SecurityGroupIds", None)
    plain["provider"]["security_group"] = {
        "GroupName": "ours",
        "IpPermissions": [
            {
                "FromPort": 22, "ToPort": 22, "IpProtocol": "tcp",
                "IpRanges": [{"CidrIp": SSH_FROM}],
            }
        ],
    }  # fmt: skip
    bootstrapped(cloud, plain).start("head")
    groups = {g["GroupId"] for g in instances(cloud)["head"]["SecurityGroups"]}
    assert {source for *_, source in open_to(cloud, groups)} & WORLD


def test_without_metadata_options_none_are_asked_for(
    cloud: Cloud, plain: dict[str, Json], launcher: Launcher
) -> None:
    plain = copy.deepcopy(plain)
    del plain["available_node_types"]["head"]["node_config"]["MetadataOptions"]
    asked = bootstrapped(cloud, plain).start("head")
    assert not [name for name in asked if name.startswith("MetadataOptions")]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Ray's open files
def test_a_laptop_that_looks_makes_no_key(
    cloud: Cloud, plain: dict[str, Json], launcher: Launcher, tmp_path: Path
) -> None:
    """Where the file names none, Ray would make a key pair to find out."""
    launcher.start("head")
    cloud.client("ec2").create_tags(
        Resources=[instances(cloud)["head"]["InstanceId"]],
        Tags=[{"Key": "ray-node-status", "Value": "up-to-date"}],
    )
    plain = copy.deepcopy(plain)
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(plain))
    assert find_route(path).key == plain["auth"].pop("ssh_private_key")
    for node_type in plain["available_node_types"].values():
        del node_type["node_config"]["KeyName"]
    path.write_text(yaml.safe_dump(plain))
    with pytest.raises(Misuse, match=r"lacks auth\.ssh_private_key"):
        find_route(path)
    assert cloud.client("ec2").describe_key_pairs()["KeyPairs"] == []


# --- the account ----------------------------------------------------------------------------------


class _Template(yaml.SafeLoader):
    """CloudFormation's own tags, as the text they stand before."""


_Template.add_multi_constructor("!", lambda loader, tag, node: f"!{tag} {node.value}")


def template() -> dict[str, Json]:
    found: dict[str, Json] = yaml.load(ACCOUNT.read_text(encoding="utf-8"), _Template)
    return found


@pytest.mark.parametrize("who", ["0.0.0.0/0", "::/0", "1.2.3.4/0", "1.2.3.4/1", "1.2.3.4", ""])
def test_ssh_cannot_be_opened_to_everybody(who: str) -> None:
    pattern = template()["Parameters"]["SshFrom"]["AllowedPattern"]
    assert re.fullmatch(pattern, SSH_FROM)
    assert not re.fullmatch(pattern, who)


def test_roles_may_do_no_more_than_they_must() -> None:
    resources = template()["Resources"].values()
    policies = [r["Properties"] for r in resources if r["Type"] == "AWS::IAM::ManagedPolicy"]
    allowed = [s for policy in policies for s in policy["PolicyDocument"]["Statement"]]
    for statement in allowed:
        actions = statement["Action"]
        for action in [actions] if isinstance(actions, str) else actions:
            assert "*" not in action.replace("ec2:Describe*", ""), action
        if statement["Resource"] == "*":
            harmless = {"ec2:Describe*", "ec2:RunInstances"}
            assert "Condition" in statement or set(actions) == harmless


def test_a_role_is_passed_on_by_who_starts_its_nodes_alone() -> None:
    policies = {
        name: (resource["Properties"].get("Roles"), statement["Resource"])
        for name, resource in template()["Resources"].items()
        if resource["Type"] == "AWS::IAM::ManagedPolicy"
        for statement in resource["Properties"]["PolicyDocument"]["Statement"]
        if statement["Action"] == "iam:PassRole"
    }
    assert policies == {
        "Launch": (["!Ref HeadRole"], "!GetAtt WorkerRole.Arn"),
        "Up": (None, "!GetAtt HeadRole.Arn"),  # of people, who start the head
    }


def test_another_key_can_have_another_name() -> None:
    """A resource that is replaced under a name of its own is refused by CloudFormation."""
    key = template()["Resources"]["Key"]["Properties"]
    assert key == {"KeyName": "!Ref KeyName", "PublicKeyMaterial": "!Ref SshKey"}


@pytest.mark.parametrize("key", ["", "ssh-ed25519", "-----BEGIN OPENSSH PRIVATE KEY-----", "a b"])
def test_the_private_half_of_the_key_is_refused(key: str) -> None:
    pattern = template()["Parameters"]["SshKey"]["AllowedPattern"]
    assert re.fullmatch(pattern, SSH_KEY)
    assert not re.fullmatch(pattern, key)


def test_the_bucket_is_private_encrypted_and_outlives_the_stack(outputs: dict[str, str]) -> None:
    assert re.fullmatch(r"s3://[a-z0-9.-]+/sweeps", outputs["Storage"])
    bucket = template()["Resources"]["Bucket"]
    assert bucket["DeletionPolicy"] == bucket["UpdateReplacePolicy"] == "Retain"
    shut = bucket["Properties"]["PublicAccessBlockConfiguration"]
    assert set(shut.values()) == {True}
    assert len(shut) == 4
    assert bucket["Properties"]["BucketEncryption"]


@pytest.mark.slow
def test_cloudformation_would_take_the_template() -> None:
    lint = Path(sys.executable).with_name("cfn-lint")
    ran = subprocess.run([lint, "--regions", REGION, "--", ACCOUNT], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
