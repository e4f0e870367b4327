"""Ray Tune trainable: one trial trains one arm, resumed from the arm store.

A step is one report interval. The run store is the only state: Tune's checkpoints carry nothing,
and a trial that Tune starts again on another worker resumes there. A step never raises: Tune would
take the exception for a dead worker and start the arm again.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import ray
from ray.tune import PlacementGroupFactory, Trainable

from trainables.code_version import DISTRIBUTION, training_version
from trainables.config.arm import ArmConfig
from trainables.config.constraint import TOLERANCE
from trainables.errors import BadData, GpuLost, GpuShareTooSmall, OtherCode, StoreError
from trainables.fetching.fetched_folders import Background
from trainables.fetching.remote_folders import is_address
from trainables.plain import Json
from trainables.records import arm_record as results
from trainables.records.arm_record import ArmRecord, Report
from trainables.records.arms import ArmStore
from trainables.records.retrying import RetryingStore

if TYPE_CHECKING:
    from trainables.arm_run import ArmRun


# Keys of a result besides Tune's own: `done` is true for stopped and finished trials alike.
SIGNATURE = "signature"
FINISHED = "finished"  # the arm's final record is in the store
PROBLEM = "problem"  # why the arm cannot go on here; it is resumed by a later run
STORE_PROBLEM = "store_problem"  # whether that was the store, data or code: all arms end then
NEEDS_WHOLE_GPU = "needs_whole_gpu"  # whether that was the arm's share of a GPU
GPU_LOST = "gpu_lost"  # whether that was the machine's GPU: another machine may do
NODE = "node"  # Ray's id of the machine; empty outside Ray
FETCHING = "fetching"  # how far its data are: the result of a step that only waited for them
FETCH_TOLD_S = 5.0  # at most so often
GPU_LOST_PAUSE_S = 2.0  # a machine that fails arms at once would else get one after the other
REPORT = "report"  # the whole last report as one JSON string: Tune tracks every number it sees


def trial_config(
    config: ArmConfig,
    root: str,
    patience_s: float,
    *,
    bundle: Mapping[str, float],
    tolerance: float = TOLERANCE,
    landmark: str = "",
    driver: str = "",
    avoid: Sequence[str] = (),
) -> dict[str, Json]:
    """What Tune carries for one arm: plain strings, so that it copies and logs next to nothing.

    The driver's code is named, too: a worker that has other code trains nothing.

    Args:
        config: what to train.
        root: of the storage.
        patience_s: how long a writer waits for a storage that is full or away.
        bundle: what the arm holds of a machine, in Ray's words.
        tolerance: the missing share that the sweep still calls feasible.
        landmark: an object of the driver's storage; a worker that does not see it has another one.
        driver: the run of a driver that starts the arm.
        avoid: machines that it must not come to, by Ray's ids.
    """
    return {
        "run": json.dumps(config.to_json()),
        "root": root,
        "patience_s": patience_s,
        "bundle": json.dumps(dict(bundle)),
        "tolerance": tolerance,
        "landmark": landmark,
        "driver": driver,
        "avoid": ", ".join(avoid),
        "code": training_version(),
    }


def resources_of(config: dict[str, Json]) -> PlacementGroupFactory:
    """What Tune asks Ray for, for one arm."""
    bundle, avoid = json.loads(config["bundle"]), config["avoid"]
    if not avoid:
        return PlacementGroupFactory([bundle])
    elsewhere = {"ray.io/node-id": f"!in({avoid})"}
    return PlacementGroupFactory([bundle], bundle_label_selector=[elsewhere])


def report_of(result: dict[str, Json]) -> Report | None:
    """The report in a result, or None when the arm ended without one."""
    return Report(**json.loads(result[REPORT])) if result.get(REPORT) else None


class ArmTrial(Trainable):
    """One arm at a time; the actor is reused for the next one, torch stays imported."""

    def setup(self, config: dict[str, Json]) -> None:
        """Take an arm. Nothing can fail here: the arm is built by the first step."""
        self._trial_config = config
        self._run: ArmRun | None = None
        self._fetch: Background | None = None

    def reset_config(self, new_config: dict[str, Json]) -> bool:
        """Take another arm in the same process."""
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Json]:
        """Train to the next report; before the first, a step may only say how far its data are.

        Problems are told in the result.
        """
        try:
            if self._run is None:
                self._refuse_other_code()
                if how_far := self._fetching():
                    return {FINISHED: False, FETCHING: how_far, "done": False}
                self._run = self._arm_run()
            return _result(self._run.advance())
        except (OtherCode, StoreError) as error:
            return _problem(str(error), STORE_PROBLEM)
        except BadData as error:
            place = f"on {socket.gethostname()}, where an arm is to be trained"
            return _problem(f"{error} This is {place}; see `sweep doctor`.", STORE_PROBLEM)
        except GpuShareTooSmall as error:
            return _problem(str(error), NEEDS_WHOLE_GPU)
        except GpuLost as error:
            time.sleep(GPU_LOST_PAUSE_S)
            return _problem(str(error), GPU_LOST)
        except Exception:
            return _problem(traceback.format_exc(limit=-3))

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Json]:
        """Nothing: the run store has the arm's checkpoint."""
        return {}

    def load_checkpoint(self, checkpoint: dict[str, Json] | None) -> None:
        """Nothing: the first step resumes from the run store."""

    def cleanup(self) -> None:
        """Let go of the model."""
        self._run = None

    def _fetching(self) -> str:
        """How far the data and weights are that lie at addresses; empty: they are here."""
        config = ArmConfig.from_json(json.loads(self._trial_config["run"]))
        if not is_address(config.data.folder) and not is_address(config.model.checkpoint):
            return ""
        if self._fetch is None:
            from trainables.build import fetch  # torch: as below

            self._fetch = Background(lambda tell: fetch(config, tell))
        return self._fetch.event(FETCH_TOLD_S)

    def _refuse_other_code(self) -> None:
        """Raise OtherCode unless the code here is the driver's."""
        told = self._trial_config
        if told["code"] != training_version():
            raise OtherCode(
                f"{socket.gethostname()}, where an arm is to be trained, has other code "
                f"({DISTRIBUTION} {training_version()}) than the sweep's driver ({told['code']}); "
                "it would train to other numbers, so it trains nothing. Install the same on every "
                "machine (`ray up` installs the laptop's checkout; `sweep doctor` names those that "
                "differ), or leave the files alone while a sweep runs; then resume it."
            )

    def _arm_run(self) -> ArmRun:
        from trainables import memory
        from trainables.arm_run import ArmRun  # torch: in the worker only, not in the driver

        if memory.gpu_is_lost():  # to an arm before this one, whose outcome that is
            os._exit(1)  # Tune starts this arm again, in a new process
        config = ArmConfig.from_json(json.loads(self._trial_config["run"]))
        told = self._trial_config
        objects = RetryingStore(told["root"], patience_s=told["patience_s"])
        if told["landmark"] and not objects.exists(told["landmark"]):
            raise StoreError(
                f"{told['landmark']} is not below {objects.root} on {socket.gethostname()}, where "
                "an arm is to be trained. Give a --storage that every machine of the cluster sees: "
                "object storage, or a folder that all of them mount."
            )
        return ArmRun(
            config,
            ArmStore(objects, driver=told["driver"]),
            gpu_share=json.loads(told["bundle"]).get("GPU", 1.0),
            tolerance=told["tolerance"],
        )


def _problem(text: str, *kinds: str) -> dict[str, Json]:
    """The result of an arm that cannot go on here."""
    kind = {name: name in kinds for name in (STORE_PROBLEM, NEEDS_WHOLE_GPU, GPU_LOST)}
    node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
    return {FINISHED: False, PROBLEM: text, **kind, NODE: node, "done": True}


def _result(record: ArmRecord) -> dict[str, Json]:
    """At most eight numbers, the signature, and the report as one string."""
    last = record.reports[-1] if record.reports else None
    result: dict[str, Json] = {
        SIGNATURE: record.signature,
        FINISHED: record.is_final,
        "done": record.is_final,
        REPORT: "" if last is None else json.dumps(dataclasses.asdict(last)),
    }
    if last is not None:
        result["step"] = last.step
        for name in (results.REPORTED_LOSS, results.REPORTED_MISSING_SHARE):
            if name in last.scalars:
                result[name] = last.scalars[name]
    return result
