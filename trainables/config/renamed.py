"""Fields by the names that earlier versions gave them."""

from __future__ import annotations

from collections.abc import Mapping

from trainables.errors import InvalidValue
from trainables.plain import Json, with_names

# Fields by the names that stored files may have. Hashes are taken of these, so that signatures and
# digests outlive a renaming.
RENAMED = {
    "warmup_share": "warmup_fraction",
    "decay_share": "decay_fraction",
    "dev_share": "dev_fraction",
    "data.dev_share": "data.dev_fraction",
}
FIRST_NAMES = {name: first for first, name in RENAMED.items()}


def renamed(plain: Mapping[str, Json]) -> dict[str, Json]:
    """Plain values of a stored file, with its fields by the names that they have now."""
    for first, name in RENAMED.items():
        if first in plain and name in plain:
            raise InvalidValue(f"{first} is called {name} now, got both. Leave {first} out.")
    return dict(with_names(plain, RENAMED))
