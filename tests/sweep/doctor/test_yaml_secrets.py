"""Secrets in a cluster.yaml: planted in many forms, found, and repeated nowhere."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from sweep.cluster.cluster_yaml import read
from sweep.doctor import yaml_secrets
from sweep.doctor.check import Check
from sweep.doctor.yaml_check import check_cluster_file
from trainables.errors import Misuse
from trainables.plain import Json

ROOT = Path(__file__).parents[3]
RAYS = "Ray's validation"


def ours() -> str:
    return (ROOT / "cluster.yaml").read_text(encoding="utf-8")


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Json], dict[str, Check]]:
    """What is found in a file, by the name of the question."""
    monkeypatch.chdir(ROOT)

    def findings(content: Json) -> dict[str, Check]:
        path = tmp_path / "cluster.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
        return {finding.name: finding for finding in check_cluster_file(path)}

    return findings


SECRETS = {
    "AKIAIOSFODNN7EXAMPLE": "export AWS_ACCESS_KEY_ID={}",
    "wJalrXUtnFEMI": "export AWS_SECRET_ACCESS_KEY={} A=1",
    "correct-horse": "MLFLOW_TRACKING_PASSWORD='{}' mlflow server",
    "hf_abcdefghijklmnopqrstu": "hf auth login --token {}",
    "battery-staple": "export MLFLOW_TRACKING_URI=postgresql://mlflow:{}@db/mlflow",
    "0123456789abcdef0123": 'export RAY_AUTH_TOKEN="{}"',
    "https://hooks.lab/T0/B1/x2y3": "export SWEEP_NOTIFY={} A=1",
    "abcdefgh.ijkl-mnop": "curl -H 'Authorization: Bearer {}' https://lab/data",
    "one-two-three": "export MLFLOW_FLASK_SERVER_SECRET_KEY={}",
    "four-five-six": "ssh-keygen --passphrase {}",
}


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_found_and_never_repeated(
    secret: str, checked: Callable[[Json], dict[str, Check]]
) -> None:
    plain = yaml.safe_load(ours())
    plain["setup_commands"].append(SECRETS[secret].format(secret))
    found = checked(plain)
    place = f"setup_commands[{len(plain['setup_commands']) - 1}]"
    assert found["secrets"].advice.startswith(f"{place} holds ")
    assert not any(secret in finding.advice for finding in found.values())


@pytest.mark.parametrize("secret", [12345678, 1234.5])
def test_a_secret_that_yaml_takes_for_a_number_is_found(
    secret: float, checked: Callable[[Json], dict[str, Check]]
) -> None:
    plain = yaml.safe_load(ours())
    plain["provider"]["aws_credentials"] = {"aws_secret_access_key": secret}
    found = checked(plain)
    assert found["secrets"].advice.startswith(
        "provider.aws_credentials.aws_secret_access_key holds "
    )
    assert not any(str(secret) in finding.advice for finding in found.values())
    plain["provider"]["aws_credentials"] = {"aws_secret_access_key": None, "token": True}
    assert "holds" not in checked(plain)["secrets"].advice


@pytest.mark.parametrize(
    "value", ["*pass-x1y2z3", "!pass-x1y2z3", "!pass-x1y2z3!z", "&a 1\nother: *pass-x1y2z3"]
)
def test_a_password_that_yaml_takes_for_its_own_is_not_repeated(value: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(f"cluster_name: a\nprovider: {{type: aws}}\npassword: {value}\n")
    with pytest.raises(Misuse, match=r"is no YAML: line \d: a value that begins with") as refusal:
        read(path)
    assert "x1y2z3" not in "".join(traceback.format_exception(refusal.value))


@pytest.mark.parametrize(
    "command",
    [
        "export RAY_AUTH_TOKEN_PATH=~/.ray/auth_token RAY_AUTH_MODE=token",
        "export MLFLOW_TRACKING_PASSWORD=$(cat ~/secret)",
        "export HF_TOKEN=`cat ~/token`",
        "mlflow server --backend-store-uri postgresql://mlflow@127.0.0.1/mlflow",
        "hf auth login --token $HF_TOKEN",
        "git clone https://github.com/lab/data",
        'export PGPASSWORD="$(cat ~/password)"',
        "export SWEEP_NOTIFY=~/tell.sh",
        "export SWEEP_NOTIFY=$(cat ~/webhook)",
        'curl -H "Authorization: Bearer $(cat ~/token)" https://lab/data',
    ],
)
def test_where_a_secret_is_read_from_is_no_secret(command: str) -> None:
    assert yaml_secrets.find_secrets({"setup_commands": [command]}) == []


def test_what_ray_says_of_a_secret_is_masked(
    checked: Callable[[Json], dict[str, Check]],
) -> None:
    plain = yaml.safe_load(ours())
    plain["max_workers"] = "hf_abcdefghijklmnopqrstu"
    found = checked(plain)
    assert "'***' is not of type 'integer'" in found[RAYS].advice
    assert not found["secrets"].passed


def test_a_digit_is_not_masked_wherever_it_stands() -> None:
    secrets = [yaml_secrets.Secret("a", "b", "0"), yaml_secrets.Secret("a", "b", "s3cret")]
    assert yaml_secrets.mask("10.0.0.1 s3cret", secrets) == "10.0.0.1 ***"
