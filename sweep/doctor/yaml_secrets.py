"""Search for secrets in a cluster.yaml, which Ray copies to every node and caches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainables.plain import Json

# What a secret looks like wherever it stands; the group is the secret.
_SHAPES = {
    "an AWS access key": r"\b((?:AKIA|ASIA)[A-Z0-9]{16})\b",
    "a private key": r"(-----BEGIN [A-Z ]*PRIVATE KEY-----)",
    "a Hugging Face token": r"\b(hf_[A-Za-z0-9]{20,})\b",
    "a GitHub token": r"\b((?:gh[pousr]|github_pat)_[A-Za-z0-9_]{20,})\b",
    "a password in an address": r"[a-z+]://[^\s:/@$]*:([^\s/@$][^\s/@]*)@",
    "a webhook": r"(?:SWEEP_NOTIFY=[\"']?|--notify[= ][\"']?)(https?://[^\s\"']+)",
    "a bearer's token": r"(?i:\bbearer\s+)([^\s$`\"'\\]{8,})",
}
_SECRET_NAME = (
    r"(?i:password|passwd|passphrase|secret|token|(?:api|access|secret)_?key|credentials?)"
)
# NAME=value in a command, where the value is not read from elsewhere ($..., `...`) and no path.
_ASSIGNED = re.compile(
    rf"\b(\w*{_SECRET_NAME})=(?![\"']?[$`~/])(?:\"([^\"]+)\"|'([^']+)'|([^\s;&|\"']+))"
)
# --password value, --token=value
_OPTION = re.compile(rf"--([\w-]*{_SECRET_NAME})[= ](?![\"']?[$`~/-])[\"']?([^\s;&|\"']+)")
_KEY = re.compile(rf"\w*{_SECRET_NAME}$")
SHORTEST = 3  # characters of a secret that masking can hide


@dataclass(frozen=True)
class Secret:
    """One secret that a cluster.yaml should not hold."""

    where: str  # the path to it in the file
    kind: str
    value: str

    @property
    def advice(self) -> str:
        """What to do; without the secret."""
        return (
            f"{self.where} holds {self.kind}. The file is copied to every node and cached: put the "
            "secret into a file of your own with mode 600, bring it by file_mounts, and change it "
            "now if the file was ever shared."
        )


def find(plain: Json) -> list[Secret]:
    """Every secret in what was read from a cluster.yaml, as far as its shape or name tells."""
    return [secret for where, key, text in texts(plain) for secret in _in(where, key, text)]


def masked(text: str, secrets: list[Secret]) -> str:
    """The text without the secrets; what is as short as a digit stands everywhere, and stays."""
    for secret in secrets:
        if len(secret.value) >= SHORTEST:
            text = text.replace(secret.value, "***")
    return text


def _in(where: str, key: str, text: str) -> Iterator[Secret]:
    for kind, shape in _SHAPES.items():
        for found in re.finditer(shape, text):
            yield Secret(where, kind, found[1])
    for found in _ASSIGNED.finditer(text):
        yield Secret(where, f"a value of {found[1]}", found[2] or found[3] or found[4])
    for found in _OPTION.finditer(text):
        yield Secret(where, f"a value of --{found[1]}", found[2])
    if _KEY.fullmatch(key) and text and text[0] not in "$~/":
        yield Secret(where, f"a value of {key}", text)


def texts(plain: Json, where: str = "", key: str = "") -> Iterator[tuple[str, str, str]]:
    """Every text and number below ``plain``: the path to it, the key it stands under, itself."""
    if isinstance(plain, dict):
        for name, value in plain.items():
            yield from texts(value, f"{where}.{name}".removeprefix("."), str(name))
    elif isinstance(plain, list):
        for number, value in enumerate(plain):
            yield from texts(value, f"{where}[{number}]", key)
    elif plain is not None and not isinstance(plain, bool):
        yield where, key, str(plain)
