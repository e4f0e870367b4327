"""The live view of `status --watch`: bars, best so far and time left, a line for each thing."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from sweep.cli.text.live import StatusAnswer, status_view
from sweep.cluster.ask import readable
from trainables.errors import Failure, InvalidValue

OUTCOMES = {"feasible": 0, "infeasible": 3, "diverged": 0, "stopped": 0, "failed": 0}


def setting(layers: int, final: int, **fields: Any) -> dict[str, Any]:
    return {
        "setting": f"ped2-ut-L{layers}-g0.15",
        "proposals": {"wanted": 5, "stored": 4, "finished": 3},
        "arms": {"wanted": 12, "final": final},
        "outcomes": OUTCOMES,
        "winner": None,
        "objective": None,
        **fields,
    }


def entry(n_settings: int = 2, n_arms: int = 1) -> dict[str, Any]:
    """Of a sweep whose first setting has a winner."""
    settings = [setting(3 + n, 6) for n in range(n_settings)]
    settings[0] = setting(3, 12, winner=4, objective=-0.1027)
    arm = {"signature": "0" * 16, "setting": "ped2-ut-L4-g0.15", "proposal": 3, "seed": 1}
    driver = {"pid": 7, "host": "here", "job": "", "waits_for": "", "gone_after_s": 0.0}
    return {
        "name": "ped2",
        "state": "running",
        "driver": driver,
        "seconds_left": 150.0,
        "arms": {"wanted": 24, "final": 18, "training": n_arms, "interrupted": 0},
        "settings": settings,
        "in_training": [{**arm, "step": 100, "steps": 400, "reported_ms": 1}] * n_arms,
        "interrupted": [],
        "space": "ped2",
        "storage": "/root",
        "statuses": {},
        "retired": {},
        "warnings": [],
        "failures": [],
        "budget": None,
        "spent": {"arms": 0, "arm_hours": 0.0, "gpu_hours": 0.0}
        | {"estimated_arm_hours": None, "times_the_estimate": None},
        "failed_alike": None,
    }


def shown(of: dict[str, Any], width: int, height: int = 24) -> list[str]:
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(status_view(StatusAnswer.from_json(of), width, height))
    return [line.rstrip() for line in console.export_text().splitlines()]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"retired": []}, "TypeError"),
        ({"settings": [setting(3, 12, winner=4, objective="low")]}, "ValueError"),
    ],
)
def test_an_answer_of_another_shape_is_of_another_version(
    change: dict[str, Any], kind: str
) -> None:
    other = {**entry(), **change}
    with pytest.raises(Failure, match=f"{kind}.*Install the same version"), readable("ped2"):
        shown(other, 100)
    with pytest.raises((TypeError, ValueError)), readable("ped2", is_remote=False):
        shown(other, 100)


def test_what_is_refused_is_no_answer_of_another_version() -> None:
    with pytest.raises(InvalidValue), readable("ped2"):
        raise InvalidValue("steps must be positive, got -1.")


def test_it_shows_how_far_the_sweep_its_settings_and_its_arms_are() -> None:
    """A bar of n columns at a fraction of s has n * s of them drawn."""
    assert [" ".join(line.split()) for line in shown(entry(), 120)] == [
        "ped2 is running, by process 7 on here",
        "18 of 24 arms final, about 2 min 30 s left",
        "━" * (120 * 18 // 24),
        "",
        f"ped2-ut-L3-g0.15 {'━' * 16} 12/12 arms best: p4, objective -0.103",
        f"ped2-ut-L4-g0.15 {'━' * 8} 6/12 arms no winner yet: 3 infeasible",
        "",
        f"ped2-ut-L4-g0.15 p3 s1 {'━' * 4} step 100 of 400",
        "Ctrl-C ends this view, not the sweep. Objective: lower is better.",
    ]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_everything_takes_one_line_of_any_width(width: int) -> None:
    lines = shown(entry(), width)
    assert len(lines) == len(shown(entry(), 120))
    assert max(map(len, lines)) <= width
    assert ("ped2-ut-L3-g0.15" in lines[4]) == (width > 80)
    assert "L3" in lines[4]


def test_what_the_terminal_has_no_lines_for_is_counted() -> None:
    many = entry(n_settings=40, n_arms=12)
    lines = shown(many, 80, height=24)
    assert len(lines) <= 24
    assert "and 4 more arms in training" in lines
    counted = next(line for line in lines if line.endswith("more settings"))
    listed = sum("/12 arms" in line for line in lines)
    assert counted == f"and {40 - listed} more settings"
    assert "12/12" not in "\n".join(lines)  # what is done makes room for what is not


def test_what_it_waits_for_is_said_and_no_time_is_guessed() -> None:
    waiting = entry(n_arms=0)
    waiting["driver"]["waits_for"] = "a machine: none holds an arm"
    waiting["seconds_left"] = None
    lines = shown(waiting, 80)
    assert "waits for a machine: none holds an arm" in lines
    assert "18 of 24 arms final" in lines
