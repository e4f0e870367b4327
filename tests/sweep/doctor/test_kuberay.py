"""The KubeRay variant: known fields alone, a token, no way in, a head that trains nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sweep.doctor import yaml_secrets
from trainables.plain import Json

FILE = Path(__file__).parents[3] / "docs/cluster/kuberay.yaml"

# Fields of ray.io/v1 in the API reference of KubeRay 1.6.2; a pod's are Kubernetes' own.
FIELDS = {
    "RayCluster": {"apiVersion", "kind", "metadata", "spec"},
    "spec": {
        "authOptions", "autoscalerOptions", "enableInTreeAutoscaling", "gcsFaultToleranceOptions",
        "headGroupSpec", "headServiceAnnotations", "managedBy", "rayVersion", "suspend",
        "upgradeStrategy", "workerGroupSpecs",
    },
    "authOptions": {"enableK8sTokenAuth", "mode", "secretName"},
    "autoscalerOptions": {
        "env", "envFrom", "idleTimeoutSeconds", "image", "imagePullPolicy", "resources",
        "securityContext", "upscalingMode", "version", "volumeMounts",
    },
    "headGroupSpec": {
        "enableIngress", "headService", "labels", "rayStartParams", "resources", "serviceType",
        "template",
    },
    "workerGroupSpecs": {
        "groupName", "idleTimeoutSeconds", "labels", "maxReplicas", "minReplicas", "numOfHosts",
        "rayStartParams", "replicas", "resources", "scaleStrategy", "suspend", "template",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def documents() -> dict[str, Json]:
    found = list(yaml.safe_load_all(FILE.read_text(encoding="utf-8")))
    return {document["kind"]: document for document in found}


@pytest.fixture(scope="module")
def spec(documents: dict[str, Json]) -> Json:
    return documents["RayCluster"]["spec"]


def containers(spec: Json) -> Iterator[Json]:
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        yield from group["template"]["spec"]["containers"]


def mlflow(spec: Json) -> Json:
    return next(container for container in containers(spec) if container["name"] == "mlflow")


def environment(container: Json) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container.get("env", [])}


def test_fields_are_those_of_the_published_reference(documents: dict[str, Json]) -> None:
    cluster = documents["RayCluster"]
    assert cluster["apiVersion"] == "ray.io/v1"
    spec = cluster["spec"]
    placed = {"RayCluster": [cluster], "spec": [spec]}
    placed |= {name: [spec[name]] for name in FIELDS if name in spec and name != "workerGroupSpecs"}
    placed["workerGroupSpecs"] = spec["workerGroupSpecs"]
    unknown = {
        name: sorted(set(value) - FIELDS[name])
        for name, values in placed.items()
        for value in values
        if set(value) - FIELDS[name]
    }
    assert unknown == {}
    assert spec["autoscalerOptions"]["version"] in ("v1", "v2")
    assert spec["autoscalerOptions"]["upscalingMode"] in ("Default", "Aggressive", "Conservative")
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())


def test_the_operator_makes_a_token_for_this_version_of_ray(spec: Json) -> None:
    import ray

    assert spec["authOptions"] == {"mode": "token"}
    assert spec["rayVersion"] == ray.__version__


def test_nothing_is_reached_from_outside(documents: dict[str, Json], spec: Json) -> None:
    head = spec["headGroupSpec"]
    assert head["serviceType"] == "ClusterIP"
    assert not head.get("enableIngress")
    assert head["rayStartParams"]["dashboard-host"] == "127.0.0.1"
    assert " --host 127.0.0.1 " in mlflow(spec)["args"][0]
    assert mlflow(spec)["args"][0].count("--host") == 1
    assert not [c["name"] for c in containers(spec) if "ports" in c]
    policy = documents["NetworkPolicy"]["spec"]
    ours = {"matchLabels": {"ray.io/cluster": documents["RayCluster"]["metadata"]["name"]}}
    assert policy["podSelector"] == ours
    assert policy["ingress"] == [{"from": [{"podSelector": ours}]}]


def test_the_head_trains_nothing_and_workers_start_from_zero(spec: Json) -> None:
    params = spec["headGroupSpec"]["rayStartParams"]
    assert (params["num-cpus"], params["num-gpus"]) == ("0", "0")
    for group in spec["workerGroupSpecs"]:
        assert group["replicas"] == group["minReplicas"] == 0 < group["maxReplicas"]
        (worker,) = group["template"]["spec"]["containers"]
        assert worker["resources"]["limits"]["nvidia.com/gpu"]


def test_every_node_has_one_image_and_one_storage(spec: Json) -> None:
    assert len({container["image"] for container in containers(spec)}) == 1
    nodes = [c for c in containers(spec) if c["name"] != "mlflow"]
    assert len({environment(container)["SWEEP_STORAGE"] for container in nodes}) == 1


def test_a_dead_worker_is_noticed_in_time(spec: Json) -> None:
    head = environment(next(containers(spec)))
    period, timeout, threshold = (
        int(head[f"RAY_health_check_{name}"])
        for name in ("period_ms", "timeout_ms", "failure_threshold")
    )
    assert threshold * (period + timeout) / 1000 <= 12


def test_mlflow_starts_again_where_no_container_may(spec: Json) -> None:
    """The operator sets restartPolicy Never in an autoscaled cluster."""
    server = mlflow(spec)
    assert server["command"] == ["sh", "-c"]
    (loop,) = server["args"]
    assert loop.startswith("while :; do mlflow server ")
    assert loop.endswith("; sleep 5; done")


def test_the_images_user_may_write_where_kubernetes_gives_roots_folders(spec: Json) -> None:
    head, workers = (
        group["template"]["spec"] for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"])
    )
    assert head["securityContext"]["fsGroup"] == 100
    (host,) = [volume["name"] for volume in workers["volumes"] if "hostPath" in volume]
    (owner,) = workers["initContainers"]
    (mount,) = owner["volumeMounts"]
    assert mount["name"] == host
    assert owner["command"] == ["chown", "1000:100", mount["mountPath"]]
    assert owner["securityContext"] == {"runAsUser": 0}


def test_mlflow_survives_the_pod(documents: dict[str, Json], spec: Json) -> None:
    (claim,) = [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in spec["headGroupSpec"]["template"]["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    ]
    assert documents["PersistentVolumeClaim"]["metadata"]["name"] == claim


def test_there_is_no_secret(documents: dict[str, Json]) -> None:
    assert yaml_secrets.find_secrets(documents) == []
