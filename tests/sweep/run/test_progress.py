"""Progress display: on 80 columns, a line for each thing, the numbers that matter."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from search_spaces.catalog import setting
from search_spaces.space import Phase, SearchSpace, Uniform
from sweep.run.coordinator import Coordinator
from sweep.run.progress import LiveDisplay, PlainDisplay, end_text, view
from sweep.study.arms import Arm
from sweep.study.definition import Definition
from sweep.study.feasibility import judge
from sweep.study.proposals import ProposalOutcome
from tests.support.oracles import TINY
from tests.support.records import SCORES, finished
from trainables.arm_run import ArmRun
from trainables.records.arm_record import REPORTED_LOSS, REPORTED_MISSING_SHARE, Report
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

DESCENDING = [1.0, 0.4, 0.16, 0.06, 0.024, 0.01]  # feasible under every alpha asked for
FLAT = [1.0, 0.99, 0.98, 0.97, 0.96, 0.95]


@pytest.fixture
def coordinator(tmp_path: Path) -> Coordinator:
    """Three settings: the first has a winner, the second a loser, one arm of the third trains."""
    settings = [setting("photographs", "ut", layers, 0.15) for layers in (3, 4, 5)]
    space = SearchSpace(
        name="toy",
        summary="",
        base=TINY,
        settings=tuple(settings),
        ranges={"constraint.alpha": Uniform(0.05, 0.3)},
        n_proposals=2,
        search_seeds=(0,),
        sampler="random",
    )
    made = Coordinator(ObjectStore(tmp_path), Definition("a-sweep-with-a-longer-name", space))
    made.start()
    for losses in (*[DESCENDING] * 4, FLAT):
        arm = made.next_arm()
        assert arm is not None
        layers = arm.config.model.layers
        if arm.config.constraint is None:  # it meets no constraint unasked, or nothing could win
            losses = FLAT
        scores = (
            dict(SCORES)
            if arm.config.constraint is None
            else {g: s - 0.5 for g, s in SCORES.items()}
        )
        made.runs.put_record(finished(arm.config, losses[: layers + 1], scores=scores))
        made.finish_arm(arm.signature)
    return made


def shown(coordinator: Coordinator, width: int) -> list[str]:
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(view(coordinator, elapsed_s=3725, width=width))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_every_thing_takes_one_line_of_80_columns(coordinator: Coordinator) -> None:
    for share in (None, 5.05):
        arm = coordinator.next_arm()
        assert arm is not None
        scalars = {REPORTED_LOSS: 0.00934}
        if share is not None:
            scalars[REPORTED_MISSING_SHARE] = share
        coordinator.record_report(arm.signature, Report(step=10, timestamp_ms=1, scalars=scalars))
    head, bar, *rest = shown(coordinator, 80)
    assert head.startswith("a-sweep-with-a-longer-name: 5 of 9 arms, 1 h 2 min, about 0 s left")
    assert bar == "━" * (80 * 5 // 9)  # without colour the rest is blank
    assert [" ".join(line.split()) for line in rest] == [
        "1 of 3 settings have a winner; proposals: 1 feasible, 1 infeasible",
        "gain: above 0 better; miss: feasible up to +0.10; objective: lower is better",
        "…L5-g0.15 p0 s0 10/40 1 draw: loss 0.00934",
        "…L3-g0.15 p1 s0 10/40 1 draw: loss 0.00934 miss +5.05",
        "best of …L3-g0.15 p0: RMSE gain +0.500; miss -1.00, objective -0.200",
        "best of …L4-g0.15 no winner yet; closest miss +4.90",
        "best of …L5-g0.15 no winner yet",
    ]


def test_names_are_whole_where_the_terminal_has_room(coordinator: Coordinator) -> None:
    lines = [" ".join(line.split()) for line in shown(coordinator, 120)]
    assert (
        "best of photographs-ut-L3-g0.15 p0: RMSE gain +0.500; miss -1.00, objective -0.200"
    ) in lines
    assert "best of photographs-ut-L5-g0.15 no winner yet" in lines


def test_the_gain_of_the_best_is_told_or_unknown_beside_plain_training(
    coordinator: Coordinator,
) -> None:
    first = coordinator.definition.space.settings[0].name
    for gain, said in ((0.25, "RMSE gain +0.250;"), (0.0, "+0.000;"), (math.nan, "p0: miss")):
        outcome = replace(coordinator.outcomes[first][0], gain=gain)
        coordinator.outcomes[first][0] = outcome
        stored = ProposalOutcome.from_stored(0, outcome.to_json())
        assert stored is not None
        assert stored.gain == pytest.approx(gain, nan_ok=True)
        assert said in "\n".join(shown(coordinator, 120))
    earlier = {n: v for n, v in outcome.to_json().items() if n != "gain"} | {"difference": -0.5}
    read = ProposalOutcome.from_stored(0, earlier)  # the sign was the other one
    assert read is not None
    assert math.isnan(read.gain)


def test_an_ended_arm_is_told_by_the_numbers_of_the_tables(tmp_path: Path) -> None:
    """In the task's unit, over every draw: not those of its last report, which look alike."""
    assert TINY.constraint is not None
    arm = ArmRun(replace(TINY, steps=10), ArmStore(ObjectStore(tmp_path)))
    record = arm.advance()
    assert record.evaluation is not None
    judged = judge([record], TINY.constraint)
    assert judged is not None
    last = record.reports[-1]
    told = end_text(record)
    assert f"held-out loss {record.evaluation.held_out_losses()[-1]:.3g}, " in told
    assert f"worst missing share {max(judged.held_out):+.2f}" in told
    assert "draw" not in told
    # what a report calls its loss is in the same unit, and of one draw
    unit = record.evaluation.scales.constant_loss
    assert last.scalars[REPORTED_LOSS] == pytest.approx(unit * last.layers["losses"][-1])
    other = end_text(replace(record, evaluation=None, status="stopped", reason="wound up"))
    share = last.scalars[REPORTED_MISSING_SHARE]
    assert f"one noise draw: held-out loss {last.scalars[REPORTED_LOSS]:.3g}, " in other
    assert other.endswith(f"worst missing share {share:+.2f}; wound up")
    unreported = replace(record, evaluation=None, status="failed", reports=[])
    assert end_text(unreported).startswith("failed")
    night = 9 * 3_600_000
    resumed = replace(record, ended_ms=record.ended_ms + night, idle_ms=record.idle_ms + night)
    assert end_text(resumed) == told


@pytest.mark.parametrize(("losses", "says"), [(DESCENDING, True), (FLAT, False)])
def test_plain_training_that_meets_every_alpha_is_told_when_it_ends(
    coordinator: Coordinator, losses: list[float], says: bool
) -> None:
    """The range ends at 0.3; DESCENDING removes 0.6 in each layer, within the tolerance 2/3."""
    settings = coordinator.definition.space.settings[:2]
    plan = coordinator.plan
    plain = plan.baselines[settings[0].name] + plan.baselines[settings[1].name]
    for display in (PlainDisplay, LiveDisplay):
        out = io.StringIO()
        console = Console(file=out, width=200, force_terminal=display is LiveDisplay)
        shown = display(console)
        with shown.show(coordinator):
            for arm in (Arm(TINY, "constrained", settings[0].name, 0), *plain):
                shown.show_final(arm, finished(arm.config, losses[: arm.config.model.layers + 1]))
        said = out.getvalue()
        wanted = "plain training meets the constraint up to alpha 0.667, and no proposal asks for"
        for one in settings:
            assert (f"! {one.name}: {wanted} more than 0.3: none can win" in said) is says, said
        if display is PlainDisplay:
            assert said.count(wanted) == 2 * says  # not of the constrained arm


def test_it_takes_the_plain_arms_of_every_seed_to_say_that_none_can_win(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    space = replace(coordinator.definition.space, search_seeds=(0, 1, 2))
    many = Coordinator(ObjectStore(tmp_path / "many"), Definition("many", space))
    many.start()
    one = space.settings[0]
    out = io.StringIO()
    shown = PlainDisplay(Console(file=out, width=200))
    with shown.show(many):
        for arm in many.plan.baselines[one.name]:
            assert "none can win" not in out.getvalue()
            shown.show_final(arm, finished(arm.config, DESCENDING[:4]))
    assert out.getvalue().count("none can win") == 1
    mixed = PlainDisplay(Console(file=(out := io.StringIO()), width=200))
    with mixed.show(many):
        for arm, losses in zip(
            many.plan.baselines[one.name], (DESCENDING, FLAT, FLAT), strict=True
        ):
            mixed.show_final(arm, finished(arm.config, losses[:4]))
    assert "none can win" not in out.getvalue()


def test_settings_that_cannot_have_a_winner_are_listed_up_to_a_few(tmp_path: Path) -> None:
    settings = tuple(setting("photographs", "ut", layers, 0.15) for layers in range(2, 9))
    space = SearchSpace(
        name="toy", base=TINY, settings=settings, search_seeds=(0,), n_proposals=1,
        ranges={"constraint.alpha": Uniform(0.05, 0.3)},
    )  # fmt: skip
    many = Coordinator(ObjectStore(tmp_path), Definition("many", space))
    many.start()
    out = io.StringIO()
    shown = LiveDisplay(Console(file=out, width=200, force_terminal=True))
    with shown.show(many):
        for arm in (arm for arms in many.plan.baselines.values() for arm in arms):
            losses = [0.4**layer for layer in range(arm.config.model.layers + 1)]
            shown.show_final(arm, finished(arm.config, losses))
    assert out.getvalue().count("none can win") == 3
    assert "! and 4 more settings cannot have a winner" in out.getvalue()


def test_a_narrow_terminal_cuts_lines_and_wraps_none(coordinator: Coordinator) -> None:
    assert len(shown(coordinator, 40)) == len(shown(coordinator, 120)) == 7


def test_settings_that_do_not_fit_are_counted_and_the_sweep_comes_first(
    coordinator: Coordinator,
) -> None:
    console = Console(record=True, file=io.StringIO(), width=80)
    console.print(view(coordinator, elapsed_s=1, height=8))
    lines = [" ".join(line.split()) for line in console.export_text().splitlines()]
    assert lines[2].startswith("1 of 3 settings have a winner")
    assert lines[-1] == "and 2 more settings"


@pytest.mark.parametrize(
    ("phase", "tried", "seeds"),
    [("search", "2 proposals", "1 search seed;"), ("confirmation", "2 listed points", "1 conf")],
)
def test_a_log_begins_with_how_much_there_is_to_do(
    coordinator: Coordinator, phase: Phase, tried: str, seeds: str
) -> None:
    out = io.StringIO()
    base = replace(coordinator.definition.space.base, early_stop=False)
    space = replace(coordinator.definition.space, phase=phase, base=base)
    coordinator.definition = replace(coordinator.definition, space=space)
    with PlainDisplay(Console(file=out, width=200)).show(coordinator):
        pass
    (line,) = out.getvalue().splitlines()
    assert f": 3 settings, at most {tried} each, {seeds}" in line
    assert line.endswith("5 of 9 arms are done")


def test_when_the_view_ends_the_sweep_as_a_whole_stays(coordinator: Coordinator) -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, height=30, force_terminal=True)
    with LiveDisplay(console).show(coordinator):
        pass
    last = out.getvalue().rpartition("a-sweep-with-a-longer-name")[2]
    assert "1 of 3 settings have a winner" in last
    assert "best of" not in last


def test_a_search_that_ended_and_problems_are_told(coordinator: Coordinator) -> None:
    coordinator.search.retired[coordinator.definition.space.settings[0].name] = "no such kernel"
    coordinator.problems.append("the disk is full")
    lines = shown(coordinator, 80)
    assert "! …L3-g0.15: its search ended: no such kernel" in lines
    assert "! the disk is full" in lines


def test_arms_in_training_have_bars_where_the_terminal_has_room(coordinator: Coordinator) -> None:
    arm = coordinator.next_arm()
    assert arm is not None
    coordinator.record_report(arm.signature, Report(step=10, timestamp_ms=1))
    wide, narrow = (shown(coordinator, width)[4].split() for width in (120, 80))
    assert wide == ["photographs-ut-L5-g0.15", "p0", "s0", "━" * 3, "10/40"]  # 3 of 12
    assert narrow == ["…L5-g0.15", "p0", "s0", "10/40"]
