"""Order to another process of a gang: the arm, where it stands, where to meet."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainables.code_version import training_version
from trainables.plain import Json


@dataclass(frozen=True)
class PeerOrder:
    """Order to one process; plain values, which Ray and pickle carry as they are."""

    root: str  # of the storage
    patience_s: float  # how long a storage that is away is waited for
    count: int  # of processes
    rank: int = 0  # of the process that gets it
    config: Json = None  # of the arm
    step: int = -1  # of the checkpoint that all go on from; -1: they begin anew
    host: str = ""  # where the first one waits
    port: int = 0  # the same
    code: str = field(default_factory=training_version)  # of the first process
