"""Cluster files: ours pass; what Ray's validation misses is planted, one by one, and caught."""

from __future__ import annotations

import copy
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from sweep.cluster.cluster_yaml import read
from sweep.doctor.check import Check
from sweep.doctor.node_scripts import CALLS, PACKAGE, PACKAGE_FILES, SETTINGS_AND_STARTS
from sweep.doctor.yaml_check import check_cluster_file
from tests.support.planted_mistakes import both, given, instead, node, without
from trainables.errors import Misuse
from trainables.plain import Json

ROOT = Path(__file__).parents[3]
AWS, ON_PREMISES = "cluster.yaml", "docs/cluster/on-premises.yaml"
RAYS, OWN = "Ray's validation", "own commands"


@pytest.fixture(autouse=True)
def laptop(monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the checkout, with a token and an SSH key."""
    monkeypatch.chdir(ROOT)
    home = Path.home()
    for name, content in ((".ray/auth_token", "0" * 64), (".ssh/descent-sweep", "a key")):
        (home / name).parent.mkdir()
        (home / name).write_text(content)
        (home / name).chmod(0o600)
    return home


def filled(name: str) -> str:
    """A file of ours as a user fills it in."""
    text = Path(name).read_text(encoding="utf-8")
    for mark, value in (
        ("sg-FILL-IN", "sg-0123456789abcdef0"),
        ("s3://FILL-IN", "s3://lab-sweeps"),
        ("/FILL-IN-shared", "/mnt/shared"),
        ("FILL-IN-head", "10.0.0.1"),
        ("FILL-IN-worker-", "10.0.0.1"),
        ("FILL-IN-", "lab-"),
    ):
        text = text.replace(mark, value)
    return text


@pytest.fixture
def checked(tmp_path: Path) -> Callable[[Json], dict[str, Check]]:
    """What is found in a file: a text, or what is written as one."""

    def findings(content: Json) -> dict[str, Check]:
        path = tmp_path / "cluster.yaml"
        text = content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False)
        path.write_text(text, encoding="utf-8")
        found = check_cluster_file(path)
        assert len({finding.name for finding in found}) == len(found)
        assert all(finding.passed == (not finding.advice) for finding in found)
        return {finding.name: finding for finding in found}

    return findings


def failed(found: dict[str, Check]) -> dict[str, str]:
    return {name: finding.advice for name, finding in found.items() if not finding.passed}


# --- our files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [AWS, ON_PREMISES])
def test_our_files_need_nothing_but_to_be_filled_in(name: str) -> None:
    found = {finding.name: finding for finding in check_cluster_file(name)}
    assert set(failed(found)) == {"filled in"}
    assert "FILL-IN" in found["filled in"].advice


@pytest.mark.parametrize("name", [AWS, ON_PREMISES])
def test_our_files_pass_once_filled_in(
    name: str, checked: Callable[[Json], dict[str, Check]]
) -> None:
    assert failed(checked(filled(name))) == {}


def test_our_two_files_install_and_start_alike() -> None:
    aws, own = yaml.safe_load(filled(AWS)), yaml.safe_load(filled(ON_PREMISES))
    for key in (
        "file_mounts",
        "rsync_exclude",
        "head_setup_commands",
        "worker_setup_commands",
        "head_start_ray_commands",
        "worker_start_ray_commands",
    ):
        assert aws[key] == own[key]


def test_the_mounts_bring_all_that_the_package_is_built_of() -> None:
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    sources = set(yaml.safe_load(filled(AWS))["file_mounts"].values())
    for name in ("README.md", "LICENSE", "sweep", "search_spaces", "trainables"):
        assert f'"{name}"' in settings
        assert name in sources
    assert sources - {"cluster", "~/.ray/auth_token"} == set(PACKAGE_FILES)


# --- what Ray misses ------------------------------------------------------------------------------


MISSED: dict[str, tuple[Callable[[Json], None], dict[str, str]]] = {
    "a misspelt key of node_config": (
        both(node("l4", "InstanceType", to=None), node("l4", "InstanceTyp", to="g6.xlarge")),
        {"EC2 requests": r"l4: EC2 knows no InstanceTyp\. Did you mean 'InstanceType'\?"},
    ),
    "a misspelt key deep in node_config": (
        node("l4", "InstanceMarketOptions", to={"MarketTyp": "spot"}),
        {"EC2 requests": r"MarketTyp"},
    ),
    "a number where EC2 takes text": (
        node("l4", "InstanceMarketOptions", "SpotOptions", to={"MaxPrice": 3}),
        {"EC2 requests": r"SpotOptions\.MaxPrice"},
    ),
    "min above max in one type": (
        given("available_node_types", "l4", "min_workers", to=9),
        {"node types": r"l4 has min_workers 9 above max_workers 8"},
    ),
    "no worker may ever start": (given("max_workers", to=0), {"node types": r"max_workers is 0"}),
    "workers of the head's type": (
        given("available_node_types", "head", "max_workers", to=2),
        {"node types": r"head is the head's type"},
    ),
    "a misspelt key of the provider": (
        given("provider", "availability_zones", to="us-west-2a"),
        {"provider": r"availability_zones is read by nobody.*'availability_zone'"},
    ),
    "no region": (given("provider", "region", to=None), {"region": r"has no region"}),
    "zones of another region": (
        given("provider", "region", to="us-east-1"),
        {"region": r"us-west-2a, us-west-2b, us-west-2c is not in the region us-east-1"},
    ),
    "a head the autoscaler counts on": (
        given("available_node_types", "head", "resources", to={}),
        {"lasting head": r"resources: \{CPU: 0, GPU: 0\}"},
    ),
    "a head that can be taken away": (
        node("head", "InstanceMarketOptions", to={"MarketType": "spot"}),
        {"lasting head": r"spot instance"},
    ),
    "an SSH key that is not there": (
        given("auth", "ssh_private_key", to="/nope"),
        {"files here": r"no file /nope"},
    ),
    "an SSH key that Ray makes": (
        given("auth", "ssh_private_key", to=None),
        {"key pair": r"auth has no ssh_private_key"},
    ),
    "an SSH key that the machine does not know": (
        node("l4", "KeyName", to=None),
        {"key pair": r"l4: .*add KeyName"},
    ),
    "a mount that is not there": (
        given("file_mounts", "~/data", to="no/such/folder"),
        {"files here": r"no no/such/folder below"},
    ),
    "SSH open to the world by Ray": (
        node("a10g", "SecurityGroupIds", to=None),
        {"security group": r"a10g names no security group.*SSH open"},
    ),
    "a group opened to the world by hand": (
        given(
            "provider",
            "security_group",
            to={"IpPermissions": [{"IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]},
        ),
        {"security group": r"whole internet in"},
    ),
    "metadata without a session token": (
        node("l4", "MetadataOptions", to={"HttpTokens": "optional"}),
        {"instance metadata": r"l4: .*HttpTokens: required"},
    ),
    "a head with Ray's almighty role": (
        node("head", "IamInstanceProfile", to=None),
        {"instance profile": r"head has no IamInstanceProfile"},
    ),
    "workers that cannot write to storage": (
        node("l4", "IamInstanceProfile", to=None),
        {"instance profile": r"l4 has no IamInstanceProfile: these workers could not write"},
    ),
    "no token on the nodes": (
        given("file_mounts", "~/.ray/auth_token", to=None),
        {"token": r"no token on the nodes"},
    ),
    "Ray's own start commands": (
        given("head_start_ray_commands", to=None),
        {OWN: r"head_start_ray_commands is missing, .*open the dashboard"},
    ),
    "Ray's own setup commands": (
        given("setup_commands", to=None),
        {OWN: r"setup_commands is missing, and Ray's own commands install a nightly Ray"},
    ),
    "no storage": (without("SWEEP_STORAGE=s3://lab-sweeps/sweeps"), {"storage": r"\(not set\)"}),
    "storage that goes with its node": (
        instead("s3://lab-sweeps", "/home/ubuntu"),
        {"storage": r"/home/ubuntu/sweeps is lost with its node"},
    ),
    "no scripts on the nodes": (
        given("file_mounts", "~/descent-sweep-cluster", to=None),
        {
            "files on nodes": r"bring no node-setup\.sh, ray-start\.sh to ~/descent-sweep-cluster, "
            r"where setup_commands, .*got no such mount.*: add \"~/descent-sweep-cluster\": cluster"
        },
    ),
    "another folder in place of the scripts": (
        given("file_mounts", "~/descent-sweep-cluster", to="docs"),
        {"files on nodes": r"bring no node-setup\.sh, ray-start\.sh to .*got docs\)"},
    ),
    "no package on the nodes": (
        both(*(given("file_mounts", f"{PACKAGE}/{name}", to=None) for name in PACKAGE_FILES)),
        {"files on nodes": r"bring no pyproject\.toml, .* trainables to ~/descent-sweep, from "},
    ),
    "a part of the package that is left out": (
        given("file_mounts", "~/descent-sweep/trainables", to=None),
        {
            "files on nodes": r"bring no trainables to .*, search_spaces\): "
            r'add "~/descent-sweep/trainables": trainables'
        },
    ),
    "a secret": (
        given("provider", "aws_credentials", to={"aws_secret_access_key": "wJalrXUtnFEMI/K7MDENG"}),
        {"secrets": r"provider\.aws_credentials\.aws_secret_access_key holds"},
    ),
}


@pytest.mark.parametrize("mistake", MISSED)
def test_what_ray_misses_is_caught(
    mistake: str, checked: Callable[[Json], dict[str, Check]]
) -> None:
    plant, expected = MISSED[mistake]
    plain = copy.deepcopy(yaml.safe_load(filled(AWS)))
    plant(plain)
    found = checked(plain)
    assert found[RAYS].passed
    assert set(failed(found)) == set(expected)
    for name, told in expected.items():
        assert re.search(told, found[name].advice, flags=re.S), found[name].advice


def test_what_is_the_users_own_is_said_to_be_unchecked_in_one_line(
    checked: Callable[[Json], dict[str, Check]], tmp_path: Path
) -> None:
    plain = yaml.safe_load(filled(AWS))
    assert checked(plain)[OWN].finding == "none"
    instead("s3://lab-sweeps", "/mnt/efs")(plain)
    plain["head_setup_commands"].append("sudo mount -t efs fs-1 /mnt/efs")
    plain["worker_start_ray_commands"].append("chmod 700 /tmp/ray 'unclosed")
    plain["initialization_commands"] = ["docker login"]
    given("available_node_types", "l4", "worker_setup_commands", to=["htop"])(plain)
    given("available_node_types", "h100", "initialization_commands", to=["true"])(plain)
    shutil.copytree("cluster", tmp_path / "scripts")
    (tmp_path / "scripts/ray-start.sh").write_text("ray start --head --dashboard-host=0.0.0.0")
    given("file_mounts", "~/descent-sweep-cluster", to=str(tmp_path / "scripts"))(plain)
    found = checked(plain)
    assert failed(found) == {}
    own, mount = found[OWN].finding.split("; ")
    own, not_checked = own.split(": ")
    assert own.split(", ") == [
        "initialization_commands",
        "head_setup_commands",
        "worker_start_ray_commands",
        "l4.worker_setup_commands",
        "h100.initialization_commands",
        f"{tmp_path}/scripts/ray-start.sh (changed)",
    ]
    for promise in ("install this checkout", "want the token", "MLflow stay on loopback"):
        assert promise in not_checked
    assert mount == "not checked that every node mounts /mnt/efs/sweeps before Ray starts"


def test_a_changed_script_with_a_mount_of_its_own_is_unchecked(
    checked: Callable[[Json], dict[str, Check]], tmp_path: Path
) -> None:
    (tmp_path / "mine.sh").write_text("ray start --head --dashboard-host=0.0.0.0")
    plain = yaml.safe_load(filled(AWS))
    plain["file_mounts"]["~/descent-sweep-cluster/ray-start.sh"] = str(tmp_path / "mine.sh")
    assert checked(plain)[OWN].finding.startswith(f"{tmp_path}/mine.sh (changed): not checked ")


def test_a_file_without_our_scripts_fails_since_nobody_checked_its_security(
    checked: Callable[[Json], dict[str, Check]],
) -> None:
    plain = yaml.safe_load(filled(AWS))
    for name in CALLS:
        plain[name] = ["export SWEEP_STORAGE=/tmp; ray start --head --dashboard-host=0.0.0.0"]
    found = checked(plain)
    assert set(failed(found)) == {OWN}
    assert found[OWN].finding.startswith(", ".join(CALLS))
    for name in SETTINGS_AND_STARTS:
        told = f"{name} has no plain call of our script, so that nobody checked token, ports and"
        assert told in found[OWN].advice
        assert f'add "bash ~/descent-sweep-cluster/{CALLS[name]}" as a comm' in found[OWN].advice
    given("file_mounts", "~/.ray/auth_token", to=None)(plain)
    assert set(failed(checked(plain))) == {OWN, "token"}


@pytest.mark.parametrize("name", SETTINGS_AND_STARTS)
@pytest.mark.parametrize(
    "more",
    [
        " && ray stop && ray start --head --dashboard-host=0.0.0.0",
        "&&ray stop",
        ' && echo "export RAY_AUTH_MODE=disabled" >> ~/.bashrc',
        "; ray stop",
        "\nray stop",
        " | sh",
        " &",
        " >~/.bashrc",
        " <(ray stop)",
        " A=$(ray stop)",
        ' "A=$(ray stop)"',
        " A=`ray stop`",
        " A=x#; ray stop",
        " # and ray stop",
        r" A=$'\'' ; ray stop #'",
        " 'A=unclosed",
    ],
)
def test_a_call_with_other_shell_in_its_line_is_no_call(
    name: str, more: str, checked: Callable[[Json], dict[str, Check]]
) -> None:
    plain = yaml.safe_load(filled(AWS))
    plain[name][0] += more
    found = checked(plain)
    assert set(failed(found)) == {OWN}
    assert found[OWN].finding.startswith(f"{name}: not checked ")
    assert found[OWN].advice.startswith(f"{name} has no plain call")


@pytest.mark.parametrize(
    "more", [" 'A=b;c & d'", " A=$HOME/x", r" A=b\;c", " A=x#y", "  --b=${C}\n"]
)
def test_a_call_may_have_quoted_words_and_variables(
    more: str, checked: Callable[[Json], dict[str, Check]]
) -> None:
    plain = yaml.safe_load(filled(AWS))
    for name in SETTINGS_AND_STARTS:
        plain[name][0] += more
    assert checked(plain)[OWN].finding == "none"


@pytest.mark.parametrize("sources", [{"~/descent-sweep": "."}, {"~/descent-sweep": "/nope"}])
def test_the_checkout_may_be_mounted_as_one_folder(
    sources: dict[str, str], checked: Callable[[Json], dict[str, Check]]
) -> None:
    plain = yaml.safe_load(filled(AWS))
    for name in PACKAGE_FILES:
        del plain["file_mounts"][f"{PACKAGE}/{name}"]
    plain["file_mounts"] |= sources
    found = checked(plain)
    assert found["files on nodes"].passed
    assert found["files here"].passed == ("/nope" not in sources.values())


@pytest.mark.parametrize(
    ("machines", "told"),
    [
        ({"worker_ips": ["10.0.0.1", "10.0.0.2"]}, "10.0.0.1 is named 2 times. "),
        ({"worker_ips": ["lab-w", "lab-w"]}, "lab-w is named 2 times. "),
        ({"head_ip": "lab-head"}, "head_ip is lab-head, a name, "),
    ],
)
def test_machines_that_ray_would_mistake_are_told(
    machines: Json, told: str, checked: Callable[[Json], dict[str, Check]]
) -> None:
    plain = yaml.safe_load(filled(ON_PREMISES))
    plain["provider"] |= machines
    found = failed(checked(plain))
    assert set(found) == {"provider"}
    assert found["provider"].startswith(told)


@pytest.mark.parametrize(
    ("place", "lasts"), [("/home/lab", True), ("/mnt/nfs", True), ("/tmp", False), ("~", False)]
)
def test_on_premises_storage_may_lie_below_home(
    place: str, lasts: bool, checked: Callable[[Json], dict[str, Check]]
) -> None:
    """Machines of one's own often mount it from a file server."""
    plain = yaml.safe_load(filled(ON_PREMISES))
    instead("/mnt/shared", place)(plain)
    assert set(failed(checked(plain))) == (set() if lasts else {"storage"})


def test_the_token_here_is_looked_at(
    laptop: Path, checked: Callable[[Json], dict[str, Check]]
) -> None:
    token = laptop / ".ray/auth_token"
    token.chmod(0o644)
    assert "chmod 600" in checked(filled(AWS))["token"].advice
    token.write_text("short")
    assert "holds 5 characters" in checked(filled(AWS))["token"].advice
    token.unlink()
    assert failed(checked(filled(AWS))).keys() == {"files here", "token"}


# --- what Ray refuses, and what is no cluster.yaml at all -----------------------------------------


@pytest.mark.parametrize(
    ("plant", "told"),
    [
        (given("setup_comands", to=[]), r"setup_comands"),
        (given("available_node_types", "l4", "max_worker", to=3), r"max_worker"),
        (given("head_node_type", to="nope"), r"head_node_type"),
        (given("setup_commands", to="pip install x"), r"\$\.setup_commands: 'pip install x'"),
        (given("idle_timeout_minutes", to="ten"), r"idle_timeout_minutes: 'ten'"),
        (given("provider", "type", to="awss"), r"awss"),
        (given("docker", to={"image": "x"}), r"container & image name"),
        (given("available_node_types", "l4", "min_workers", to=99), r"max_workers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_ray_refuses_is_told_and_hides_none_of_our_rules(
    plant: Callable[[Json], None], told: str, checked: Callable[[Json], dict[str, Check]]
) -> None:
    plain = yaml.safe_load(filled(AWS))
    plant(plain)
    given("file_mounts", "~/data", to="no/such/folder")(plain)
    found = checked(plain)
    assert "no no/such/folder" in found["files here"].advice
    assert re.search(told, found[RAYS].advice, flags=re.S), found[RAYS].advice


def test_all_that_ray_refuses_is_told_at_once(checked: Callable[[Json], dict[str, Check]]) -> None:
    plain = yaml.safe_load(filled(AWS))
    plain |= {"max_workers": "${WORKERS}", "setup_comands": [], "head_start_ray_commands": 3}
    plain["file_mounts"] = 3
    found = checked(plain)
    advice = found[RAYS].advice
    for told in ("max_workers", "setup_comands", "head_start_ray_commands", "`envsubst`"):
        assert told in advice
    assert "Not checked until this is corrected: files here, token" in advice
    assert OWN not in found


@pytest.mark.parametrize("left_out", [("head",), ("l4", "a10g"), ("head", "l4", "a10g", "h100")])
def test_aws_may_tell_what_its_instances_have(
    left_out: tuple[str, ...], checked: Callable[[Json], dict[str, Check]]
) -> None:
    """`ray up` asks EC2 before it validates."""
    plain = yaml.safe_load(filled(AWS))
    for name in left_out:
        del plain["available_node_types"][name]["resources"]
    found = checked(plain)
    assert found[RAYS].passed
    assert set(failed(found)) == ({"lasting head"} if "head" in left_out else set())


def test_elsewhere_every_type_without_resources_is_told(
    checked: Callable[[Json], dict[str, Check]],
) -> None:
    plain = yaml.safe_load(filled(AWS))
    given("provider", to={"type": "gcp", "region": "us-west1", "project_id": "lab"})(plain)
    for name in ("l4", "h100"):
        del plain["available_node_types"][name]["resources"]
    found = checked(plain)
    assert ".l4: 'resources' is" in found[RAYS].advice
    assert ".h100: 'resources' is" in found[RAYS].advice
    assert found["token"].passed


def test_anchors_of_yaml_are_read(checked: Callable[[Json], dict[str, Check]]) -> None:
    text = filled(AWS).replace("head_node_type: head", "head_node_type: &head head")
    assert "&head" in text
    assert failed(checked(text.replace("cluster_name: ", "cluster_name: &name "))) == {}


def test_what_ray_only_prints_is_told_too(checked: Callable[[Json], dict[str, Check]]) -> None:
    plain = yaml.safe_load(filled(ON_PREMISES))
    del plain["provider"]["worker_ips"]
    assert "supply a `head_ip` and list of `worker_ips`" in checked(plain)[RAYS].advice


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a: [1", r"is no YAML: line 1: "),
        ("- a\n- b\n", r"must be a mapping with a cluster_name and a provider"),
        ("cluster_name: x\nprovider: aws\n", r"must be a mapping"),
        ("cluster_name: a\nprovider: {type: aws}\ncluster_name: b\n", r"line 3: 'cluster_name' is"),
        ("a: 1\n---\nb: 2\n", r"line 2: a second document begins there"),
        (
            "apiVersion: v1\nkind: Secret\n---\napiVersion: ray.io/v1\nkind: RayCluster\n",
            r"Kubernetes objects \(Secret, RayCluster\).*kubectl apply.*--address",
        ),
        ("apiVersion: ray.io/v1\nkind: RayCluster\n", r"Kubernetes objects \(RayCluster\)"),
        ("provider: {type: aws}\nmax_workers: 2026-13-01\n", r"is no YAML: a value looks like"),
    ],
    ids=[
        *("no YAML", "a list", "a provider that is text", "a key twice", "two documents"),
        *("Kubernetes objects", "one Kubernetes object", "a date that is none"),
    ],
)
def test_what_is_no_cluster_file_is_a_finding_and_a_misuse(
    content: str, told: str, checked: Callable[[Json], dict[str, Check]], tmp_path: Path
) -> None:
    assert re.search(told, checked(content)["cluster.yaml"].advice, flags=re.S), checked(content)[
        "cluster.yaml"
    ].advice
    with pytest.raises(Misuse, match=told):
        read(tmp_path / "cluster.yaml")


def test_a_file_that_is_not_there_is_a_misuse() -> None:
    with pytest.raises(Misuse, match=r"nowhere\.yaml cannot be read: No such file"):
        read("nowhere.yaml")
