"""Ray Tune trainable: a trial trains one arm, or a group, resumed from the store.

A step is one report interval. The run store is the only state: Tune's checkpoints carry nothing,
and a trial that Tune starts again on another worker resumes there. A step never raises: Tune would
take the exception for a dead worker and start the arm again.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import logging
import os
import socket
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import ray
from ray.tune import PlacementGroupFactory, Trainable

from trainables.code_version import DISTRIBUTION, training_version
from trainables.config.arm import ArmConfig
from trainables.config.trial import TrialOrder
from trainables.errors import BadData, GpuLost, GpuShareTooSmall, OtherCode, RankLost, StoreError
from trainables.fetching.background import Background
from trainables.fetching.remote_folders import is_address
from trainables.machine.leaving import is_left
from trainables.plain import Json
from trainables.records import arm_record as results
from trainables.records.arm_record import ArmRecord, Report, code_text
from trainables.records.arms import ArmStore
from trainables.records.retrying import RetryingStore
from trainables.registry.training_code import training_code

if TYPE_CHECKING:
    from trainables.fused.group import ArmGroup
    from trainables.sharding.placed import PlacedCompany


log = logging.getLogger(__name__)

# Keys of a result besides Tune's own: `done` is true for stopped and finished trials alike.
ARMS = "arms"  # what arms came to, as one JSON string: Tune tracks every number it sees
PROBLEM = "problem"  # why the arms cannot go on here; they are resumed by a later run
STORE_PROBLEM = "store_problem"  # whether that was the store, data or code: all arms end then
NEEDS_WHOLE_GPU = "needs_whole_gpu"  # whether that was the arm's share of a GPU
GPU_LOST = "gpu_lost"  # whether that was the GPU, which the trial holds on to: another may do
NODE = "node"  # Ray's id of the machine; empty outside Ray
FETCHING = "fetching"  # how far its data are: the result of a step that only waited for them
FETCH_TOLD_S = 5.0  # at most so often
GPU_LOST_PAUSE_S = 2.0  # a machine that fails arms at once would else get one after the other


@dataclasses.dataclass(frozen=True)
class ArmResult:
    """Result of one arm of a trial in a step."""

    signature: str
    finished: bool  # its final record is in the store
    report: Report | None  # its last; None where it ended without one

    @classmethod
    def from_record(cls, record: ArmRecord) -> ArmResult:
        """Result as an arm's record has it."""
        last = record.reports[-1] if record.reports else None
        return cls(record.signature, record.is_final, last)


def resources_of(config: dict[str, Json]) -> PlacementGroupFactory:
    """Resources of one trial that Tune requests from Ray: all processes at once, or none."""
    order = TrialOrder.from_tune(config)
    bundles = [dict(order.bundle)] * order.processes
    if not order.avoid:
        return PlacementGroupFactory(bundles)
    elsewhere = {"ray.io/node-id": f"!in({', '.join(order.avoid)})"}
    return PlacementGroupFactory(bundles, bundle_label_selector=[elsewhere] * order.processes)


def arms_of(result: dict[str, Json]) -> list[ArmResult]:
    """Results of a trial's arms in the step of this result; empty where there are none."""

    def arm(signature: str, finished: bool, report: dict[str, Json] | None) -> ArmResult:
        return ArmResult(signature, finished, None if report is None else Report(**report))

    return [arm(**one) for one in json.loads(result.get(ARMS, "[]"))]


class ArmTrial(Trainable):
    """Trainable of one arm or group at a time; its actor is reused, so torch stays imported."""

    def setup(self, config: dict[str, Json]) -> None:
        """Take arms. Nothing can fail here: they are built by the first step."""
        self._company: PlacedCompany | None = None
        self._trial_config = config
        self._group: ArmGroup | None = None
        self._fetch: Background | None = None
        self._gpu_lost = ""

    def reset_config(self, new_config: dict[str, Json]) -> bool:
        """Take others in the same process."""
        self.cleanup()
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Json]:
        """Train to the next report; before the first, a step may only say how far its data are.

        Problems are told in the result.
        """
        if self._gpu_lost:
            return self._holding_lost_gpu()
        if self._group is None and is_left():
            return _result([], done=True)  # they go on elsewhere
        try:
            if self._group is None:
                order = _checked_order(self._trial_config)
                if how_far := self._fetching(order.configs[0]):  # all of a group read the same
                    return {FETCHING: how_far, "done": False}
                self._group = self._arm_group(order)
            _require_gpu()
            records = self._group.advance()
            return _result(records, done=self._group.is_final or is_left())
        except RankLost as error:
            log.warning("%s", error)
            os._exit(1)  # as if this one had died: Tune starts all of them again
        except (OtherCode, StoreError) as error:
            return _problem(str(error), STORE_PROBLEM)
        except BadData as error:
            place = f"on {socket.gethostname()}, where an arm is to be trained"
            return _problem(f"{error} This is {place}; see `sweep doctor`.", STORE_PROBLEM)
        except GpuShareTooSmall as error:
            return _problem(str(error), NEEDS_WHOLE_GPU)
        except GpuLost as error:
            _require_gpu()  # ends here where this process could use it before; else CUDA never did
            self._gpu_lost = str(error)
            return self._holding_lost_gpu()
        except Exception:
            return _problem(traceback.format_exc(limit=-3))

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Json]:
        """Save nothing: the run store has the arm's checkpoint."""
        return {}

    def load_checkpoint(self, checkpoint: dict[str, Json] | None) -> None:
        """Load nothing: the first step resumes from the run store."""

    def cleanup(self) -> None:
        """Let go of the models, and of the processes that train with this one."""
        self._group = None
        if self._company is not None:
            self._company.end()

    def _holding_lost_gpu(self) -> dict[str, Json]:
        """Hold the GPU until the driver ends this trial: another would bring its arms to it."""
        time.sleep(GPU_LOST_PAUSE_S)
        return _problem(self._gpu_lost, GPU_LOST) | {"done": False}

    def _fetching(self, config: ArmConfig) -> str:
        """Progress of data and weights that lie at addresses; empty: they are here."""
        if not is_address(config.data.folder) and not is_address(config.model.checkpoint):
            return ""
        if self._fetch is None:
            from trainables.build import fetch  # torch: as below

            self._fetch = Background(lambda tell: fetch(config, tell))
        return self._fetch.event(FETCH_TOLD_S)

    def _arm_group(self, order: TrialOrder) -> ArmGroup:
        with _collecting_seldom():
            from trainables.arm_run import ArmRun  # torch: in the worker only, not in the driver
            from trainables.fused.group import ArmGroup

        objects = RetryingStore(order.root, patience_s=order.patience_s)
        if order.landmark and not objects.exists(order.landmark):
            raise StoreError(
                f"{order.landmark} is not below {objects.root} on {socket.gethostname()}, where "
                "an arm is to be trained. Give a --storage that every machine of the cluster sees: "
                "object storage, or a folder that all of them mount."
            )
        store = ArmStore(objects, driver=order.driver, sweep=order.sweep)
        if order.processes > 1:
            from trainables.sharding.placed import PlacedCompany

            self._company = PlacedCompany(
                order.processes, order.bundle, order.root, order.patience_s
            )
        runs = [
            ArmRun(
                config,
                store,
                gpu_share=order.bundle.get("GPU", 1.0),
                tolerance=order.tolerance,
                company=self._company,
            )
            for config in order.configs
        ]
        return ArmGroup(runs)


def _checked_order(config: dict[str, Json]) -> TrialOrder:
    """The order to a trial; OtherCode unless the code here is the driver's."""
    if config["code"] != training_version():
        raise OtherCode(
            f"{socket.gethostname()}, where an arm is to be trained, has other code "
            f"({DISTRIBUTION} {training_version()}) than the sweep's driver ({config['code']}); "
            "it would train to other numbers, so it trains nothing. Install the same on every "
            "machine (`ray up` installs the laptop's checkout; `sweep doctor` names those that "
            "differ), or leave the files alone while a sweep runs; then resume it."
        )
    order = TrialOrder.from_tune(config)
    for code, run in zip(order.codes, order.configs, strict=False):
        names = (run.task, run.model.name, run.data.name)
        here = code_text(training_code(*names, as_loaded=True))
        if here != code:
            raise OtherCode(
                f"{socket.gethostname()}, where an arm is to be trained, has a plug-in's code "
                f"that is not the driver's (here {here}; there {code}); it would train to "
                "other numbers, so it trains nothing. Install the same on every machine, or "
                "leave its files alone while a sweep runs; then resume the sweep. Where they "
                "train alike all the same, resume it with --accept-code: tables mark pairs of "
                "two codes."
            )
    return order


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    """Collect garbage seldom in the block, all of whose objects stay.

    It saves a third of the time that torch's import takes.
    """
    usual = gc.get_threshold()
    gc.set_threshold(50_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def _require_gpu() -> None:
    """End this process where an arm's error took its GPU: Tune starts the others in a new one."""
    from trainables import memory  # torch: in the worker only

    if memory.gpu_is_lost():
        os._exit(1)  # at once: every call to CUDA fails by now


def _problem(text: str, *kinds: str) -> dict[str, Json]:
    """The result of arms that cannot go on here."""
    kind = {name: name in kinds for name in (STORE_PROBLEM, NEEDS_WHOLE_GPU, GPU_LOST)}
    node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
    return {PROBLEM: text, **kind, NODE: node, "done": True}


def _result(records: Sequence[ArmRecord], *, done: bool) -> dict[str, Json]:
    """Results of the arms as one string, and at most eight numbers, of the first."""
    arms = [ArmResult.from_record(record) for record in records]
    result: dict[str, Json] = {
        "done": done,
        ARMS: json.dumps([dataclasses.asdict(arm) for arm in arms]),
    }
    last = arms[0].report if arms else None
    if last is not None:
        result["step"] = last.step
        for name in (results.REPORTED_LOSS, results.REPORTED_MISSING_SHARE):
            if name in last.scalars:
                result[name] = last.scalars[name]
    return result
