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


def _check_region(cluster: ClusterFile) -> Iterator[str]:
    region = cluster.provider.get("region")
    if not region:
        yield "provider has no region: name one, for example us-west-2."
        return
    zones = [zone.strip() for zone in (cluster.provider.get("availability_zone") or "").split(",")]
    elsewhere = ", ".join(zone for zone in zones if zone and not zone.startswith(region))
    if elsewhere:
        yield f"availability_zone {elsewhere} is not in the region {region}: correct one of them."


def _check_requests(cluster: ClusterFile) -> Iterator[str]:
    """Every node_config fits the model of RunInstances: names, nesting and types."""
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
    for node_type in cluster.node_types:
        name, config = node_type.name, node_type.node_config
        for key in sorted(set(config) - known):
            yield f"{name}: EC2 knows no {key}.{did_you_mean(key, known)} Correct or delete it."
        rest = {key: config[key] for key in set(config) & (known - RAYS_OWN)}
        report = ParamValidator().validate({**rest, "MinCount": 1, "MaxCount": 1}, request)
        if report.has_errors():
            errors = report.generate_report().replace("\n", "; ")
            yield f"{name}: EC2 would refuse node_config: {errors}."
        if "InstanceType" not in config:
            yield f"{name} has no InstanceType: name one."


@functools.cache
def _run_instances() -> Json:
    """The input of EC2's RunInstances, from botocore's copy of its interface."""
    from botocore.loaders import Loader
    from botocore.model import ServiceModel

    service = ServiceModel(Loader().load_service_model("ec2", "service-2"))
    return service.operation_model("RunInstances").input_shape


def _check_security_group(cluster: ClusterFile) -> Iterator[str]:
    """No group is Ray's: it opens port 22 to the world in a group that it makes or fills."""
    for node_type in cluster.node_types:
        config = node_type.node_config
        interfaces = config.get("NetworkInterfaces") or []
        groups = [config.get("SecurityGroupIds"), *(i.get("Groups") for i in interfaces)]
        if not any(groups):
            yield (
                f"{node_type.name} names no security group: Ray would use one of its own with SSH "
                "open to the whole internet. Give SecurityGroupIds of yours: "
                "docs/cluster/aws-account.yaml makes one."
            )
    rules = cluster.provider.get("security_group", {}).get("IpPermissions") or []
    v4 = {r.get("CidrIp") for rule in rules for r in rule.get("IpRanges") or []}
    v6 = {r.get("CidrIpv6") for rule in rules for r in rule.get("Ipv6Ranges") or []}
    if (v4 | v6) & WORLD:
        yield "provider.security_group lets the whole internet in: remove it."


def _check_metadata(cluster: ClusterFile) -> Iterator[str]:
    """Metadata are version 2: with 1, whoever has a node fetch an address reads its credentials."""
    for node_type in cluster.node_types:
        if (node_type.node_config.get("MetadataOptions") or {}).get("HttpTokens") != "required":
            yield (
                f"{node_type.name}: instance metadata answers without a session token. Add "
                "MetadataOptions: {HttpTokens: required}."
            )


def _check_instance_profiles(cluster: ClusterFile) -> Iterator[str]:
    for node_type in cluster.node_types:
        if node_type.node_config.get("IamInstanceProfile"):
            continue
        if node_type == cluster.head:
            reason = "Ray would make one that may do everything on EC2 and S3"
        elif cluster.stores_objects:
            reason = "these workers could not write to storage"
        else:
            continue
        yield (
            f"{node_type.name} has no IamInstanceProfile: {reason}. Name one: "
            "docs/cluster/aws-account.yaml makes it."
        )


def _check_head(cluster: ClusterFile) -> Iterator[str]:
    """The head lasts, and trains nothing."""
    head = cluster.head
    if "InstanceMarketOptions" in head.node_config:
        yield (
            f"{head.name} is a spot instance: when AWS takes it back, every driver and MLflow end. "
            "Remove its InstanceMarketOptions."
        )
    if (head.resources.get("CPU"), head.resources.get("GPU")) != (0, 0):
        yield (
            f"{head.name} needs resources: {{CPU: 0, GPU: 0}}, got {head.resources}: the "
            "autoscaler would count on it for arms."
        )


def _check_key_pair(cluster: ClusterFile) -> Iterator[str]:
    if cluster.ssh_key is None:
        yield (
            "auth has no ssh_private_key: Ray would make another key pair on every laptop, and "
            "`sweep --address` refuses the file. Name a key of yours, and its KeyName in every "
            "node_config: docs/cluster/aws-account.yaml makes one."
        )
        return
    for node_type in cluster.node_types:
        if not {"KeyName", "UserData"} & set(node_type.node_config):
            yield f"{node_type.name}: with auth.ssh_private_key EC2 needs its name: add KeyName."


RULES: dict[str, Rule] = {
    "region": _check_region,
    "EC2 requests": _check_requests,
    "security group": _check_security_group,
    "instance metadata": _check_metadata,
    "instance profile": _check_instance_profiles,
    "lasting head": _check_head,
    "key pair": _check_key_pair,
}
