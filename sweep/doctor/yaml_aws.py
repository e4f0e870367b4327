"""Rules for a cluster.yaml on AWS that Ray's validation lacks; see yaml_rules.py."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from sweep.doctor.yaml_rules import ClusterFile, Rule
from trainables.errors import did_you_mean
from trainables.plain import Json

# Keys of node_config that are Ray's: the rest goes to EC2's RunInstances as it is.
RAYS_OWN = {"SubnetIds"}
WORLD = {"0.0.0.0/0", "::/0"}


def _region(cluster: ClusterFile) -> Iterator[str]:
    provider = cluster.prepared["provider"]
    region = provider.get("region")
    if not region:
        yield "provider has no region: name one, such as us-west-2."
        return
    zones = [zone.strip() for zone in (provider.get("availability_zone") or "").split(",")]
    elsewhere = ", ".join(zone for zone in zones if zone and not zone.startswith(region))
    if elsewhere:
        yield f"availability_zone {elsewhere} is not in {region}: correct the one or the other."


def _node_config(cluster: ClusterFile) -> Iterator[str]:
    """Every node_config against the model of RunInstances: names, nesting and types."""
    try:
        from botocore.validate import ParamValidator

        request = _run_instances()
    except ImportError:
        yield (
            "botocore is not installed here, and `ray up` needs it: "
            "pip install 'descent-sweep[cluster]'."
        )
        return
    known = set(request.members) | RAYS_OWN
    for name, config in cluster.node_configs.items():
        for key in sorted(set(config) - known):
            yield f"{name}: EC2 knows no {key}.{did_you_mean(key, known)} Correct or delete it."
        rest = {key: config[key] for key in set(config) & (known - RAYS_OWN)}
        report = ParamValidator().validate({**rest, "MinCount": 1, "MaxCount": 1}, request)
        if report.has_errors():
            told = report.generate_report().replace("\n", "; ")
            yield f"{name}: EC2 would refuse node_config: {told}."
        if "InstanceType" not in config:
            yield f"{name} has no InstanceType: name one."


@functools.cache
def _run_instances() -> Json:
    """What EC2's RunInstances may be given, as botocore's copy of its interface says."""
    from botocore.loaders import Loader
    from botocore.model import ServiceModel

    service = ServiceModel(Loader().load_service_model("ec2", "service-2"))
    return service.operation_model("RunInstances").input_shape


def _security_group(cluster: ClusterFile) -> Iterator[str]:
    """Ray opens port 22 of a group that it makes or fills to the world, whatever it is told."""
    for name, config in cluster.node_configs.items():
        interfaces = config.get("NetworkInterfaces") or []
        if not (config.get("SecurityGroupIds") or any(one.get("Groups") for one in interfaces)):
            yield (
                f"{name} names no security group: Ray would use one of its own with SSH open to "
                "the whole internet. Give SecurityGroupIds of yours: "
                "docs/cluster/aws-account.yaml makes one."
            )
    rules = cluster.prepared["provider"].get("security_group", {}).get("IpPermissions") or []
    v4 = {r.get("CidrIp") for rule in rules for r in rule.get("IpRanges") or []}
    v6 = {r.get("CidrIpv6") for rule in rules for r in rule.get("Ipv6Ranges") or []}
    if (v4 | v6) & WORLD:
        yield "provider.security_group lets the whole internet in: remove it."


def _metadata(cluster: ClusterFile) -> Iterator[str]:
    """With version 1, whoever gets a node to fetch an address can read its credentials."""
    for name, config in cluster.node_configs.items():
        if (config.get("MetadataOptions") or {}).get("HttpTokens") != "required":
            yield (
                f"{name}: instance metadata answers without a session token. Add MetadataOptions: "
                "{HttpTokens: required}."
            )


def _instance_profile(cluster: ClusterFile) -> Iterator[str]:
    needed = {cluster.head_type: "Ray would make one that may do everything on EC2 and S3"}
    if cluster.stores_objects:
        needed = dict.fromkeys(cluster.worker_types(), "they could not write to storage") | needed
    for name, why in needed.items():
        if not cluster.node_configs[name].get("IamInstanceProfile"):
            made = "docs/cluster/aws-account.yaml makes one"
            yield f"{name} has no IamInstanceProfile: {why}. {made}."


def _lasting_head(cluster: ClusterFile) -> Iterator[str]:
    name = cluster.head_type
    if "InstanceMarketOptions" in cluster.node_configs[name]:
        yield (
            f"{name} is a spot instance: when it is taken, every driver and MLflow go with it. "
            "Remove its InstanceMarketOptions."
        )
    resources = cluster.node_types[name]["resources"]
    if (resources.get("CPU"), resources.get("GPU")) != (0, 0):
        yield (
            f"{name} needs resources: {{CPU: 0, GPU: 0}}, got {resources}: the autoscaler would "
            "count on it for arms."
        )


def _key_pair(cluster: ClusterFile) -> Iterator[str]:
    if "ssh_private_key" not in cluster.prepared["auth"]:
        yield (
            "auth has no ssh_private_key: Ray would make another key pair on every laptop, and "
            "`sweep --address` refuses the file. Name a key of yours, and its KeyName in every "
            "node_config: docs/cluster/aws-account.yaml makes one."
        )
        return
    for name, config in cluster.node_configs.items():
        if not {"KeyName", "UserData"} & set(config):
            yield (
                f"{name}: with auth.ssh_private_key EC2 needs the name of that key pair: add "
                "KeyName."
            )


RULES: dict[str, Rule] = {
    "region": _region,
    "EC2 requests": _node_config,
    "security group": _security_group,
    "instance metadata": _metadata,
    "instance profile": _instance_profile,
    "lasting head": _lasting_head,
    "key pair": _key_pair,
}
