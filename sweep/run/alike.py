"""First failures of a sweep that are alike: no more arms are worth starting.

sweeps/NAME/failed_alike.json     why the last run ended so; the next one trains failed arms again

An arm that diverged or was stopped has come to a result, and one result of any arm shows that arms
can be trained: then failures are counted and reported, and end nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

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
        self._settings: dict[str, list[str]] = {}  # by kind: the settings of the arms
        self._has_result = False
        self.why = ""  # the run ends, once it has

    def known(self, status: Status) -> None:
        """An arm has ended so, in this run or before."""
        self._has_result |= status not in ("running", "failed")

    def failed(self, arm: Arm, reason: str) -> str:
        """An arm has failed in this run; why the run is to end, where it is the last of ARMS_ALIKE.

        Else ''. It is said once.
        """
        if self._has_result or self.why:
            return ""
        settings = self._settings.setdefault(kind_of(reason), [])
        settings.append(arm.setting)
        if len(settings) != ARMS_ALIKE:
            return ""
        of = f" (all of them of {arm.setting})" if set(settings) == {arm.setting} else ""
        self.why = f"the first {ARMS_ALIKE} arms failed alike{of}, and none has finished: {reason}"
        self.why += "." * (not reason.endswith("."))
        return self.why


def put_failed_alike(objects: ObjectStore, sweep: str, why: str) -> None:
    """Store why a run has ended."""
    objects.put_json(_name(sweep), {"why": why})


def failed_alike(objects: ObjectStore, sweep: str) -> str:
    """Why the last run ended, where its first arms failed alike; else ''."""
    return objects.get_derived(_name(sweep), _why) or ""


def drop_failed_alike(objects: ObjectStore, sweep: str) -> None:
    """A run begins."""
    objects.delete(_name(sweep))


def _why(plain: Mapping[str, Json]) -> str:
    return str(plain["why"])


def _name(sweep: str) -> str:
    return f"{folder(sweep)}/failed_alike.json"
