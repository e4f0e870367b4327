"""First failures of a sweep that are alike: no more arms are worth starting.

sweeps/NAME/failed_alike.json     why the last run ended so; the next one trains failed arms again

An arm that diverged or was stopped has come to a result. One result of any arm, or a report of
another that has not failed, shows that arms can be trained: then failures end nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sweep.study.arms import Arm
from sweep.study.definition import folder
from trainables.plain import Plain
from trainables.records.arm_record import Status
from trainables.records.objects import ObjectStore
from trainables.retries import ARMS_ALIKE

# A hash is at least 8 hexadecimal digits, one of them decimal: else it may be a word.
_VARYING = re.compile(
    r"(?P<path>(?:[A-Za-z][\w+.-]*:/|~|\.{1,2})?/[^\s'\"),;]*)"
    r"|(?P<number>0x[0-9a-fA-F]+|\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b|\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
)


def failure_kind(reason: str) -> str:
    """Strip a failure's reason of its numbers, paths and hashes.

    >>> failure_kind("RuntimeError: shape '[4, 10]' is invalid (in forward, line 31)")
    "RuntimeError: shape '[#, #]' is invalid (in forward, line #)"
    >>> failure_kind("no file /data/clip_01.avi of arm 3f9a01c2d4e5f607: 2.5e-3 GB")
    'no file / of arm #: # GB'
    """
    return _VARYING.sub(lambda match: "/" if match.lastgroup == "path" else "#", reason)


class FirstFailures:
    """Failures of arms in one run of a driver, while no arm of the sweep has come to a result."""

    def __init__(self) -> None:
        self._arms: dict[str, list[Arm]] = {}  # by kind of failure
        self._reported: set[str] = set()  # arms that reported and have not failed since
        self._has_result = False
        self._alike: tuple[str, ...] = ()  # how problems begin of the arms that end the run
        self.why = ""  # why the run is to end, once it is

    def note_end(self, signature: str, status: Status) -> None:
        """Note how an arm has ended, in this run or before."""
        self._reported.discard(signature)
        self._has_result |= status not in ("running", "failed")

    def note_report(self, signature: str) -> None:
        """Note that an arm has reported in this run."""
        self._reported.add(signature)

    def note_failure(self, arm: Arm, reason: str) -> str:
        """Note a failure in this run; return, once, why the run is to end, or '' where it goes on.

        It is to end when ARMS_ALIKE arms have failed alike.
        """
        self._reported.discard(arm.signature)
        if self._has_result or self.why:
            return ""
        arms = self._arms.setdefault(failure_kind(reason), [])
        arms.append(arm)
        if len(arms) < ARMS_ALIKE or self._reported:
            return ""
        self._alike = tuple(f"arm {one.signature} is not finished: " for one in arms)
        is_one = {one.setting for one in arms} == {arm.setting}
        where = f" (all of them of {arm.setting})" if is_one else ""
        self.why = (
            f"the first {len(arms)} arms failed alike{where}, and none has finished: {reason}"
        )
        self.why += "." * (not reason.endswith("."))
        return self.why

    def summarize(self, problems: Sequence[str]) -> list[str]:
        """Put why the run ends in the place of its problems with single arms that failed alike."""
        others = [problem for problem in problems if not problem.startswith(self._alike)]
        return [f"{self.why} Mend that first: a resume trains these arms again.", *others]


@dataclass(frozen=True)
class _End(Plain):
    """The end of a run whose first arms failed alike."""

    why: str
    ended_s: float = 0.0  # since 1970


def put_failed_alike(objects: ObjectStore, sweep: str, why: str) -> None:
    """Store why a run has ended, and the time."""
    objects.put_json(_name(sweep), _End(why, time.time()).to_json())


def failed_alike(objects: ObjectStore, sweep: str, *, since_s: float = 0.0) -> str:
    """Reason why the last run ended, where its first arms failed alike; else ''.

    A run that ended before ``since_s``, in seconds since 1970, does not count.
    """
    end = objects.get_derived(_name(sweep), _End.from_json)
    return end.why if end is not None and end.ended_s >= since_s else ""


def drop_failed_alike(objects: ObjectStore, sweep: str) -> None:
    """Forget why the last run ended, as the next one begins."""
    objects.delete(_name(sweep))


def _name(sweep: str) -> str:
    return f"{folder(sweep)}/failed_alike.json"
