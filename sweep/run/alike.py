"""First failures of a sweep that are alike: no more arms are worth starting.

sweeps/NAME/failed_alike.json     why the last run ended so; the next one trains failed arms again

An arm that diverged or was stopped has come to a result. One result of any arm, or a report of
another that has not failed, shows that arms can be trained: then failures end nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence

from sweep.study.arms import Arm
from sweep.study.definition import folder
from trainables.plain import Json
from trainables.records.arm_record import Status
from trainables.records.objects import ObjectStore
from trainables.retries import ARMS_ALIKE

_VARYING = re.compile(
    r"(?P<path>(?:[A-Za-z][\w+.-]*:/|~|\.{1,2})?/[^\s'\"),;]*)"
    r"|(?P<number>0x[0-9a-fA-F]+|\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b|\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
)


def kind_of(reason: str) -> str:
    """The reason of a failure without its numbers, paths and hashes.

    >>> kind_of("RuntimeError: shape '[4, 10]' is invalid (in forward, line 31)")
    "RuntimeError: shape '[#, #]' is invalid (in forward, line #)"
    >>> kind_of("no file /data/clip_01.avi of arm 3f9a01c2d4e5f607: 2.5e-3 GB")
    'no file / of arm #: # GB'
    """
    return _VARYING.sub(lambda found: "/" if found["path"] else "#", reason)


class FirstFailures:
    """Failures of arms in one run of a driver, while no arm of the sweep has come to a result."""

    def __init__(self) -> None:
        """No arm has ended."""
        self._arms: dict[str, list[Arm]] = {}  # by kind
        self._reported: set[str] = set()  # arms that have not failed since
        self._has_result = False
        self.alike: list[str] = []  # those that end the run
        self.why = ""  # the run ends, once it has

    def known(self, signature: str, status: Status) -> None:
        """An arm has ended so, in this run or before."""
        self._reported.discard(signature)
        self._has_result |= status not in ("running", "failed")

    def reported(self, signature: str) -> None:
        """An arm has come to a report in this run."""
        self._reported.add(signature)

    def failed(self, arm: Arm, reason: str) -> str:
        """An arm has failed in this run; why the run is to end, where ARMS_ALIKE of them have.

        Else ''. It is said once.
        """
        self._reported.discard(arm.signature)
        if self._has_result or self.why:
            return ""
        arms = self._arms.setdefault(kind_of(reason), [])
        arms.append(arm)
        if len(arms) < ARMS_ALIKE or self._reported:
            return ""
        self.alike = [one.signature for one in arms]
        is_one = {one.setting for one in arms} == {arm.setting}
        of = f" (all of them of {arm.setting})" if is_one else ""
        self.why = f"the first {len(arms)} arms failed alike{of}, and none has finished: {reason}"
        self.why += "." * (not reason.endswith("."))
        return self.why

    def told(self, problems: Sequence[str]) -> list[str]:
        """Problems of the run, why it ends first, without what that says of single arms."""
        said = tuple(f"arm {signature} is not finished: " for signature in self.alike)
        others = [problem for problem in problems if not problem.startswith(said)]
        return [f"{self.why} Mend that first: a resume trains these arms again.", *others]


def put_failed_alike(objects: ObjectStore, sweep: str, why: str) -> None:
    """Store why a run has ended, and that it was now."""
    objects.put_json(_name(sweep), {"why": why, "ended_s": time.time()})


def failed_alike(objects: ObjectStore, sweep: str, *, since_s: float = 0.0) -> str:
    """Why the last run ended, where its first arms failed alike; else ''.

    Args:
        objects: the storage root.
        sweep: its name.
        since_s: a run that ended before, in seconds since 1970, does not count.
    """
    ended_s, why = objects.get_derived(_name(sweep), _from_json) or (0.0, "")
    return why if ended_s >= since_s else ""


def drop_failed_alike(objects: ObjectStore, sweep: str) -> None:
    """A run begins."""
    objects.delete(_name(sweep))


def _from_json(plain: Mapping[str, Json]) -> tuple[float, str]:
    return float(plain.get("ended_s", 0.0)), str(plain["why"])


def _name(sweep: str) -> str:
    return f"{folder(sweep)}/failed_alike.json"
