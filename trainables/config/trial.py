"""Order to a trial of Ray Tune: which arms it trains, where, and by whose code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainables.code_version import training_version
from trainables.config.arm import ArmConfig
from trainables.config.constraint import TOLERANCE
from trainables.plain import Json


@dataclass(frozen=True, kw_only=True)
class TrialOrder:
    """Order of a driver to one trial."""

    configs: Sequence[ArmConfig]  # the arms to train: one, or a group (fused/group.py)
    root: str  # of the storage
    patience_s: float  # how long a writer waits for a storage that is full or away
    bundle: Mapping[str, float]  # what each process of the trial holds of a machine, in Ray's words
    processes: int = 1  # how many train the arm together
    tolerance: float = TOLERANCE  # the missing share that the sweep still calls feasible
    landmark: str = ""  # an object of the driver's storage: a worker without it has another one
    driver: str = ""  # the run of a driver that starts the arms
    sweep: str = ""  # its sweep's name
    avoid: Sequence[str] = ()  # machines that they must not come to, by Ray's ids
    codes: Sequence[str] = ()  # that are to train each arm, in ``code_text``'s words; empty: any
    code: str = field(default_factory=training_version)  # the driver's own

    def to_tune(self) -> dict[str, Json]:
        """Configuration for Tune: two strings, so that it copies and logs next to nothing.

        The code stands apart: a worker of another version must be able to read it.
        """
        configs = [config.to_json() for config in self.configs]
        plain = {**vars(self), "configs": configs, "bundle": dict(self.bundle)}
        return {"order": json.dumps(plain), "code": self.code}

    @classmethod
    def from_tune(cls, config: Mapping[str, Json]) -> TrialOrder:
        """Order that ``to_tune`` wrote."""
        plain = json.loads(config["order"])
        configs = [ArmConfig.from_json(run) for run in plain.pop("configs")]
        return cls(configs=configs, **plain)
