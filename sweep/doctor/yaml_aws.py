"""Rules for a cluster.yaml on AWS that Ray's validation lacks; see yaml_rules.py."""

from __future__ import annotations

import copy
import functools

from sweep.doctor.yaml_rules import OBJECT_STORES, ClusterFile, Rule, did_you_mean, settings
from trainables.plain import Json

# Keys of node_config that are Ray's: the rest goes to EC2's RunInstances as it is.
RAYS_OWN = {"SubnetIds"}
WORLD = {"0.0.0.0/0", "::/0"}


def _region(cluster: ClusterFile) -> list[str]:
    provider = cluster.prepared["provider"]
    region = provider.get("region")
    if not region:
        return ["provider has no region: name one, such as us-west-2."]
    zones = [zone.strip() for zone in (provider.get("availability_zone") or "").split(",")]
    elsewhere = [zone for zone in zones if zone and not zone.startswith(region)]
    if not elsewhere:
        return []
    return [
        f"availability_zone {', '.join(elsewhere)} is not in {region}: correct the one or the "
        "other."
    ]


def _node_config(cluster: ClusterFile) -> list[str]:
    """Every node_config against the model of RunInstances: names, nesting and types."""
    try:
        from botocore.validate import ParamValidator

        request = _run_instances()
    except ImportError:
        return [
            "botocore is not installed here, and `ray up` needs it: "
            "pip install 'descent-sweep[cluster]'."
        ]
    known = set(request.members) | RAYS_OWN
    problems = []
    for name, node_type in cluster.node_types.items():
        config = copy.deepcopy(node_type["node_config"])
        for key in sorted(set(config) - known):
            hint = did_you_mean(key, known)
            problems.append(f"{name}: EC2 knows no {key}.{hint} Correct or delete it.")
        rest = {key: config[key] for key in set(config) & (known - RAYS_OWN)}
        report = ParamValidator().validate({**rest, "MinCount": 1, "MaxCount": 1}, request)
        if report.has_errors():
            told = report.generate_report().replace("\n", "; ")
            problems.append(f"{name}: EC2 would refuse node_config: {told}.")
        if "InstanceType" not in config:
            problems.append(f"{name} has no InstanceType: name one.")
    return problems


@functools.cache
def _run_instances() -> Json:
    """What EC2's RunInstances may be given, as botocore's copy of its interface says."""
    from botocore.loaders import Loader
    from botocore.model import ServiceModel

    service = ServiceModel(Loader().load_service_model("ec2", "service-2"))
    return service.operation_model("RunInstances").input_shape


def _security_group(cluster: ClusterFile) -> list[str]:
    """Ray opens port 22 of a group that it makes or fills to the world, whatever it is told."""
    problems = [
        f"{name} names no security group: Ray would use one of its own with SSH open to the whole "
        "internet. Give SecurityGroupIds of yours: docs/cluster/aws-account.yaml makes one."
        for name, node_type in cluster.node_types.items()
        if not _groups(node_type["node_config"])
    ]
    rules = cluster.prepared["provider"].get("security_group", {}).get("IpPermissions") or []
    if any(_ranges(rule) & WORLD for rule in rules):
        problems.append("provider.security_group lets the whole internet in: remove it.")
    return problems


def _groups(config: dict[str, Json]) -> list[str]:
    interfaces = config.get("NetworkInterfaces") or []
    groups = [group for interface in interfaces for group in interface.get("Groups") or []]
    return groups or list(config.get("SecurityGroupIds") or [])


def _ranges(rule: dict[str, Json]) -> set[str]:
    v4 = {r.get("CidrIp", "") for r in rule.get("IpRanges") or []}
    return v4 | {r.get("CidrIpv6", "") for r in rule.get("Ipv6Ranges") or []}


def _metadata(cluster: ClusterFile) -> list[str]:
    """With version 1, whoever gets a node to fetch an address can read its credentials."""
    return [
        f"{name}: instance metadata answers without a session token. Add MetadataOptions: "
        "{HttpTokens: required}."
        for name, node_type in cluster.node_types.items()
        if (node_type["node_config"].get("MetadataOptions") or {}).get("HttpTokens") != "required"
    ]


def _instance_profile(cluster: ClusterFile) -> list[str]:
    stores = settings(cluster.head_commands(), "SWEEP_STORAGE")
    needed = {cluster.head_type: "Ray would make one that may do everything on EC2 and S3"}
    if any(store.startswith(OBJECT_STORES) for store in stores):
        needed = dict.fromkeys(cluster.worker_types(), "they could not write to storage") | needed
    return [
        f"{name} has no IamInstanceProfile: {why}. docs/cluster/aws-account.yaml makes one."
        for name, why in needed.items()
        if not cluster.node_types[name]["node_config"].get("IamInstanceProfile")
    ]


def _lasting_head(cluster: ClusterFile) -> list[str]:
    head = cluster.node_types[cluster.head_type]
    problems = []
    if "InstanceMarketOptions" in head["node_config"]:
        problems.append(
            f"{cluster.head_type} is a spot instance: when it is taken, every driver and MLflow go "
            "with it. Remove its InstanceMarketOptions."
        )
    counted = {name: head["resources"].get(name) for name in ("CPU", "GPU")}
    if counted != {"CPU": 0, "GPU": 0}:
        problems.append(
            f"{cluster.head_type} needs resources: {{CPU: 0, GPU: 0}}, got {head['resources']}: "
            "the autoscaler would count on it for arms."
        )
    return problems


def _key_pair(cluster: ClusterFile) -> list[str]:
    if "ssh_private_key" not in cluster.prepared["auth"]:
        return [
            "auth has no ssh_private_key: Ray would make another key pair on every laptop, and "
            "`sweep --address` refuses the file. Name a key of yours, and its KeyName in every "
            "node_config: docs/cluster/aws-account.yaml makes one."
        ]
    return [
        f"{name}: with auth.ssh_private_key EC2 needs the name of that key pair: add KeyName."
        for name, node_type in cluster.node_types.items()
        if not {"KeyName", "UserData"} & set(node_type["node_config"])
    ]


RULES: dict[str, Rule] = {
    "region": _region,
    "EC2 requests": _node_config,
    "security group": _security_group,
    "instance metadata": _metadata,
    "instance profile": _instance_profile,
    "lasting head": _lasting_head,
    "key pair": _key_pair,
}
