"""Comparison of the nodes' answers for `sweep doctor`: one line a question.

What all nodes agree on is one line; a node that differs, fails or is silent gets its own.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sweep.doctor.check import Check
from sweep.doctor.node import NodeReport
from trainables.code_version import DISTRIBUTION

SILENT_ADVICE = (
    f"Is {DISTRIBUTION} installed there, in the version of the head, and is the node up? `ray up` "
    "installs it; Ray's logs on the node say more."
)
CLOCK_LIMIT_S = 2.0  # times in MLflow and in logs are of different machines' clocks


@dataclass(frozen=True)
class Node:
    """One node of the cluster, as Ray knows it."""

    id: str
    name: str  # host name and address
    address: str
    gpus: float  # offered to arms
    is_head: bool


Reports = Mapping[Node, NodeReport | str]  # what every node answered, or why there is no answer


def compared(reports: Reports) -> Iterator[Check]:
    """One line for every check that went well on all nodes, and one for each way it did not."""
    silent = {node: said for node, said in reports.items() if isinstance(said, str)}
    for why in dict.fromkeys(silent.values()):
        where = [node.name for node, said in silent.items() if said == why]
        yield Check("node", False, f"{_listed(where)}: {why}", SILENT_ADVICE)
    told = {node: said for node, said in reports.items() if isinstance(said, NodeReport)}
    if told:
        yield _versions(told)
    for name in dict.fromkeys(check.name for said in told.values() for check in said.checks):
        of = {
            node.name: check
            for node, said in told.items()
            for check in said.checks
            if check.name == name
        }
        yield from merged(name, of)


def merged(name: str, of: Mapping[str, Check]) -> Iterator[Check]:
    """One check over several nodes: a line for each way it failed, and one where it passed."""
    failed = {node: check for node, check in of.items() if not check.passed}
    for found, advice in dict.fromkeys((c.found, c.advice) for c in failed.values()):
        where = [node for node, c in failed.items() if (c.found, c.advice) == (found, advice)]
        yield Check(name, False, f"{_listed(where)}: {found}", advice)
    passed = {node: check.found for node, check in of.items() if check.passed}
    if passed:
        yield Check(name, True, _together(passed))


def _together(found: Mapping[str, str]) -> str:
    """What several nodes have, in one line."""
    if len(set(found.values())) == 1:
        return f"{_listed(list(found))}: {next(iter(found.values()))}"
    shown = "; ".join(f"{node}: {text}" for node, text in list(found.items())[:3])
    return shown + (f"; and {len(found) - 3} more" if len(found) > 3 else "")


def _versions(told: Mapping[Node, NodeReport]) -> Check:
    """Whether every node has what most have of everything that must be the same."""
    facts = {node.name: said.facts for node, said in told.items()}
    wrong = []
    for fact in dict.fromkeys(name for of in facts.values() for name in of):
        values = {node: of[fact] for node, of in facts.items() if fact in of}
        kinds = dict.fromkeys(values.values())
        if len(kinds) > 1:
            parts = (f"{v} on {_listed([n for n in values if values[n] == v])}" for v in kinds)
            wrong.append(f"{fact}: {', '.join(parts)}")
    if wrong:
        return Check(
            "the same everywhere",
            False,
            "; ".join(wrong),
            "Install the same versions on every node (`ray up` installs the laptop's checkout) and "
            "copy the same data and weights to all: results would not be comparable.",
        )
    shown = next(iter(facts.values()))
    some = ", ".join(f"{name} {shown[name]}" for name in (DISTRIBUTION, "Python", "torch"))
    return Check("the same everywhere", True, f"{len(facts)} nodes have {some}")


def machines_check(machines: Sequence[str], up: Collection[str]) -> Check:
    """Whether all machines of a cluster.yaml are in the cluster.

    Args:
        machines: its worker_ips, which may be names.
        up: addresses of the nodes that are up.
    """
    missing = [machine for machine in machines if _address(machine) not in up]
    if not missing:
        return Check("machines", True, f"all {len(machines)} of worker_ips are in the cluster")
    return Check(
        "machines",
        False,
        f"of worker_ips not in the cluster: {_listed(missing)}",
        "A machine that is on may still be set up; else the head's "
        "/tmp/ray/session_latest/logs/monitor.* say why. Ray never tries one again whose setup "
        "failed once or that was off for 15 minutes: mend it, and `ray up` again, which ends "
        "running drivers; `sweep resume NAME` continues them.",
    )


def _address(machine: str) -> str:
    """A machine's address, by which Ray knows its node."""
    try:
        return socket.gethostbyname(machine)
    except (OSError, UnicodeError):  # a name with too long a part
        return machine


def _listed(names: Sequence[str]) -> str:
    """The first few names.

    >>> _listed(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def clock_check(off_s: Mapping[str, float]) -> Check:
    """The line about clocks; ``off_s`` are seconds that each node's is ahead of the head's."""
    wrong = {name: s for name, s in off_s.items() if not abs(s) <= CLOCK_LIMIT_S}
    if wrong or not off_s:
        told = ", ".join(f"{name} by {s:+.1f} s" for name, s in wrong.items())
        return Check(
            "clock",
            False,
            f"off the head's: {told}" if wrong else "no node reported its time",
            "Let every node take its time from NTP (chrony, systemd-timesyncd).",
        )
    return Check("clock", True, f"at most {max(map(abs, off_s.values())):.2f} s off the head's")
