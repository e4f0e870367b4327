"""Search for secrets in a cluster.yaml, which Ray copies to every node and caches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainables.plain import Json

# Shapes of secrets wherever they stand; the group is the secret.
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

    path: str  # to it in the file
    kind: str
    value: str

    @property
    def advice(self) -> str:
        """The problem and its remedy, without the secret."""
        return (
            f"{self.path} holds {self.kind}, and the file is copied to every node and cached. Put "
            "the secret into a file of your own with mode 600, bring it by file_mounts, and change "
            "it now if the file was ever shared."
        )


def find_secrets(plain: Json) -> list[Secret]:
    """Every secret in a parsed cluster.yaml, as far as its shape or name shows."""
    return [secret for path, key, text in _texts(plain) for secret in _match(path, key, text)]


def mask(text: str, secrets: list[Secret]) -> str:
    """The text without the secrets; very short ones stay, since they are part of other words."""
    for secret in secrets:
        if len(secret.value) >= SHORTEST:
            text = text.replace(secret.value, "***")
    return text


def _match(path: str, key: str, text: str) -> Iterator[Secret]:
    for kind, shape in _SHAPES.items():
        for match in re.finditer(shape, text):
            yield Secret(path, kind, match[1])
    for match in _ASSIGNED.finditer(text):
        yield Secret(path, f"a value of {match[1]}", match[2] or match[3] or match[4])
    for match in _OPTION.finditer(text):
        yield Secret(path, f"a value of --{match[1]}", match[2])
    if _KEY.fullmatch(key) and text and text[0] not in "$~/":
        yield Secret(path, f"a value of {key}", text)


def _texts(plain: Json, path: str = "", key: str = "") -> Iterator[tuple[str, str, str]]:
    """Every text and number below ``plain``: the path to it, the key it stands under, itself."""
    if isinstance(plain, dict):
        for name, value in plain.items():
            yield from _texts(value, f"{path}.{name}".removeprefix("."), str(name))
    elif isinstance(plain, list):
        for number, value in enumerate(plain):
            yield from _texts(value, f"{path}[{number}]", key)
    elif plain is not None and not isinstance(plain, bool):
        yield path, key, str(plain)
