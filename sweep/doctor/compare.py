"""Comparison of the nodes' reports for `sweep doctor`: one line a question.

A result that all nodes share is one line; a node that differs, fails or is silent gets its own.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator, Mapping, Sequence

from sweep.doctor.check import Check
from sweep.doctor.node import Node, NodeReport
from sweep.study.advice import counted
from trainables.code_version import DISTRIBUTION
from trainables.errors import list_first

SILENT = "node"  # the check of a node that sent no report
SILENT_ADVICE = (
    f"Check that the node is up and that {DISTRIBUTION} is installed on it in the head's version: "
    "`ray up` installs it. Ray's logs on the node have details."
)
CLOCK_LIMIT_S = 2.0  # times in MLflow and in logs are of different machines' clocks
NAMED = 3  # nodes in a line; more are counted


def silent_report(reason: str) -> NodeReport:
    """The report in place of one that a node could not send."""
    return NodeReport({}, (Check(SILENT, False, reason, SILENT_ADVICE),))


def compare_reports(reports: Mapping[Node, NodeReport]) -> Iterator[Check]:
    """A line for every check that passed on all nodes, and one for each way in which it failed."""
    by_name: dict[str, dict[str, Check]] = {SILENT: {}}
    for node, report in reports.items():
        for check in report.checks:
            by_name.setdefault(check.name, {})[node.name] = check
    yield from _merge(SILENT, by_name.pop(SILENT))
    facts = {node.name: report.facts for node, report in reports.items() if report.facts}
    if facts:
        yield _compare_facts(facts)
    for name, checks in by_name.items():
        yield from _merge(name, checks)


def _merge(name: str, checks: Mapping[str, Check]) -> Iterator[Check]:
    """One check of several nodes: a line for each way in which it failed, and one for passes."""
    failures: dict[tuple[str, str], list[str]] = {}
    for node, check in checks.items():
        if not check.passed:
            failures.setdefault((check.finding, check.advice), []).append(node)
    for (finding, advice), nodes in failures.items():
        yield Check(name, False, f"{list_first(nodes)}: {finding}", advice)
    findings = {node: check.finding for node, check in checks.items() if check.passed}
    if len(set(findings.values())) == 1:
        yield Check(name, True, f"{list_first(list(findings))}: {next(iter(findings.values()))}")
    elif findings:
        shown = "; ".join(f"{node}: {text}" for node, text in list(findings.items())[:NAMED])
        more = f"; and {len(findings) - NAMED} more" if len(findings) > NAMED else ""
        yield Check(name, True, shown + more)


def _compare_facts(facts: Mapping[str, Mapping[str, str]]) -> Check:
    """Check that nodes agree on what must be the same; ``facts`` are by node."""
    differences = []
    for name in dict.fromkeys(name for known in facts.values() for name in known):
        nodes: dict[str, list[str]] = {}
        for node, known in facts.items():
            if name in known:
                nodes.setdefault(known[name], []).append(node)
        if len(nodes) > 1:
            values = (f"{value} on {list_first(having)}" for value, having in nodes.items())
            differences.append(f"{name}: {', '.join(values)}")
    if differences:
        return Check(
            "the same everywhere",
            False,
            "; ".join(differences),
            "Install the same versions on every node (`ray up` installs the laptop's checkout) and "
            "copy the same data and weights to all: results would not be comparable.",
        )
    shown = next(iter(facts.values()))
    some = ", ".join(f"{name} {shown[name]}" for name in (DISTRIBUTION, "Python", "torch"))
    return Check("the same everywhere", True, f"{counted(len(facts), 'node')} with {some}")


def check_machines(machines: Sequence[str], addresses: Collection[str]) -> Check:
    """Check that all machines of a cluster.yaml are in the cluster.

    Args:
        machines: its worker_ips, which may be names.
        addresses: those of the nodes that are up.
    """
    missing = [machine for machine in machines if _look_up(machine) not in addresses]
    if not missing:
        return Check("machines", True, f"all {len(machines)} of worker_ips are in the cluster")
    return Check(
        "machines",
        False,
        f"worker_ips not in the cluster: {list_first(missing)}",
        "A machine that is on may still be set up; else the head's "
        "/tmp/ray/session_latest/logs/monitor.* have the reason. Ray never tries a machine again "
        "whose setup failed once or that was off for 15 minutes: repair it and run `ray up` again, "
        "which ends running drivers; `sweep resume NAME` continues them.",
    )


def _look_up(machine: str) -> str:
    """The address of a machine, by which Ray knows its node."""
    try:
        return socket.gethostbyname(machine)
    except (OSError, UnicodeError):  # a name with too long a part
        return machine


def check_clocks(offsets_s: Mapping[str, float]) -> Check:
    """Check that clocks agree; ``offsets_s`` is how far each node's is ahead of the head's."""
    wrong = {node: s for node, s in offsets_s.items() if not abs(s) <= CLOCK_LIMIT_S}
    if offsets_s and not wrong:
        largest_s = max(map(abs, offsets_s.values()))
        return Check("clock", True, f"at most {largest_s:.2f} s off the head's")
    named = ", ".join(f"{node} by {s:+.1f} s" for node, s in wrong.items())
    return Check(
        "clock",
        False,
        f"off the head's: {named}" if wrong else "no node sent its time",
        "Set the clock of every node by NTP (chrony, systemd-timesyncd).",
    )
