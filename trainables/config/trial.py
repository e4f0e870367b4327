"""Configuration of a trial for Ray Tune, as plain strings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from trainables.code_version import training_version
from trainables.config.arm import ArmConfig
from trainables.config.constraint import TOLERANCE
from trainables.plain import Json


def trial_config(
    configs: Sequence[ArmConfig],
    root: str,
    patience_s: float,
    *,
    bundle: Mapping[str, float],
    processes: int = 1,
    tolerance: float = TOLERANCE,
    landmark: str = "",
    driver: str = "",
    sweep: str = "",
    avoid: Sequence[str] = (),
    codes: Sequence[str] = (),
) -> dict[str, Json]:
    """Trial configuration for Tune: plain strings, so that it copies and logs next to nothing.

    The driver's code is named, too: a worker that has other code trains nothing.

    Args:
        configs: the arms to train: one, or a group (fused/group.py).
        root: of the storage.
        patience_s: how long a writer waits for a storage that is full or away.
        bundle: what each process of the trial holds of a machine, in Ray's words.
        processes: how many train the arm together.
        tolerance: the missing share that the sweep still calls feasible.
        landmark: an object of the driver's storage; a worker that does not see it has another one.
        driver: the run of a driver that starts the arms.
        sweep: its sweep's name.
        avoid: machines that they must not come to, by Ray's ids.
        codes: the code that is to train each arm, in ``code_text``'s words; empty: any plug-in's.
    """
    return {
        "runs": json.dumps([config.to_json() for config in configs]),
        "root": root,
        "patience_s": patience_s,
        "bundle": json.dumps(dict(bundle)),
        "processes": processes,
        "tolerance": tolerance,
        "landmark": landmark,
        "driver": driver,
        "sweep": sweep,
        "avoid": ", ".join(avoid),
        "code": training_version(),
        "codes": json.dumps(codes),
    }


def configs_of(config: dict[str, Json]) -> list[ArmConfig]:
    """The arms that ``trial_config`` was given."""
    return [ArmConfig.from_json(run) for run in json.loads(config["runs"])]
