"""Figures beside the stored records that they are drawn from, counted again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest

from search_spaces.space import Setting
from sweep.confirmation.comparisons import summarize_confirmation
from sweep.report.confirmed import _labels
from sweep.report.figures import draw
from sweep.report.layers import median_of
from sweep.report.measured import STEPS, Measured, confirmations, measured
from sweep.report.numbers import Column, Numbers, Values
from sweep.report.search import COLUMNS, SEEN, UNSEEN, pareto_front
from sweep.results.facts import Fact
from sweep.results.sweep_view import load_sweep
from tests.support import confirmations as confirming
from tests.support.records import SCORES
from tests.support.sweeps import FEASIBLE, FIRST, INFEASIBLE, PLAIN, SECOND, SPACE, store_sweep
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.registry.task_facts import ACCURACY


def data_of(objects: ObjectStore, name: str = "tiny") -> Measured:
    view = load_sweep(objects, name)
    settings = [s.setting.name for s in view.settings]
    found = confirmations(objects, name)
    return measured(view, ArmStore(objects).record, {}, settings, found)


def drawn(axis: Any) -> dict[str, tuple[list[float], list[float]]]:
    """The lines of a panel that have a name, as (x, y)."""
    return {
        str(line.get_label()): (list(line.get_xdata()), list(line.get_ydata()))
        for line in axis.get_lines()
        if not str(line.get_label()).startswith("_")
    }


def changed(objects: ObjectStore, of: Callable[[ArmRecord], dict[str, Any]]) -> None:
    """Store every finished record of the sweep anew, with these fields of its evaluation."""
    store, other = ArmStore(objects), load_sweep(objects, "tiny")
    for signature in other.arms:
        record = store.record(signature)
        if record is not None and record.evaluation is not None:
            found = replace(record.evaluation, **of(record))
            objects.put_json(
                f"arms/{signature}/record.json", replace(record, evaluation=found).to_json()
            )


# --- columns that mypy knows ----------------------------------------------------------------------


def test_the_typed_columns_are_those_of_the_frames(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]})
    data = data_of(objects)
    known = set(get_args(Column))
    assert known == {*Fact._fields, *STEPS, "shown"}
    assert set(Values.__annotations__) <= known
    assert {*data.pairs.frame, *data.facts.frame, *data.steps.frame} <= known
    assert set(COLUMNS) <= set(data.proposals)


# --- families of settings -------------------------------------------------------------------------


def test_settings_that_differ_in_depth_alone_share_a_panel(objects: ObjectStore) -> None:
    runs = {"a-L2-g0.15": (2, 0.15), "a-L3-g0.15": (3, 0.15), "a-L3-g0.2": (3, 0.2)}
    settings = tuple(
        Setting(name, {"train_gamma": round(0.1 + 0.01 * at, 2)}) for at, name in enumerate(runs)
    )
    store_sweep(
        objects,
        {s.name: [FEASIBLE] for s in settings},
        space=replace(SPACE, settings=settings),
    )
    data = data_of(objects)
    # records by hand are of one depth: what each setting runs is said here
    said = {
        name: data.runs[name].with_fields({"model.layers": layers, "train_gamma": gamma})
        for name, (layers, gamma) in runs.items()
    }
    data = replace(data, runs=said)
    figures = draw(data, ["depth", "train-gamma"])
    labels = {name: list(drawn(f.axes[0])) for name, f in figures.items()}
    assert labels["depth"] == ["layers 2", "layers 3"]
    assert labels["train-gamma"] == ["trained at 0.15", "trained at 0.2"]
    titles = [axis.get_title() for axis in figures["depth"].axes]
    assert titles == ["a-L*-g0.15\nconstrained", "a-L*-g0.15\nplain training"]
    _, scores = drawn(figures["depth"].axes[1])["layers 2"]
    np.testing.assert_allclose(scores, list(SCORES.values()))


# --- layers ---------------------------------------------------------------------------------------


def test_rmse_where_the_network_stops_is_as_the_root_of_its_loss(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]})
    lines = [
        line
        for line in draw(data_of(objects), ["anytime"])["anytime"].axes[0].get_lines()
        if line.get_label() == "plain training"
    ]
    by_layer = {gamma: SCORES[gamma] * np.sqrt(np.array(PLAIN) / PLAIN[-1]) for gamma in SCORES}
    # trained at 0.15: the nearest test gamma is 0.2, the last 0.4, and none lies between
    for line, gamma in zip(lines, ("0.20", "0.40"), strict=True):
        assert list(line.get_xdata()) == [0, 1, 2, 3]
        np.testing.assert_allclose(line.get_ydata(), by_layer[gamma])


def test_accuracy_where_the_network_stops_is_the_recorded_one(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]})
    data = data_of(objects)
    rows = data.pairs.where(metric="loss", arm="constrained").frame
    scores = data.pairs.where(metric="rmse").frame.assign(metric="accuracy")
    read = rows.assign(metric="layer_accuracy", value=rows["layer"] / 10)
    texts = replace(data, metric=ACCURACY, pairs=Numbers(pd.concat([scores, read])))
    line, *_ = draw(texts, ["anytime"])["anytime"].axes[0].get_lines()
    np.testing.assert_allclose(line.get_ydata(), [0, 0.1, 0.2, 0.3])


def test_the_histogram_adds_the_counts_of_layers_and_seeds(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]})
    assert draw(data_of(objects), ["histogram"]) == {}  # records of before ratios were counted
    ratios = {arm: np.random.default_rng(n).lognormal(-0.3, 0.5, (2, 3, 400))  # seeds, layers
              for n, arm in enumerate(("constrained", "unconstrained"))}  # fmt: skip
    edges = np.append(np.linspace(0, 2, 101), np.inf)

    def counted(record: ArmRecord) -> dict[str, Any]:
        of_layers = ratios[record.config.arm][record.config.seed]
        return {
            "descent_ratio_counts": [np.histogram(one, edges)[0].tolist() for one in of_layers],
            "descent_ratio_mean": of_layers.mean(axis=1).tolist(),
            "descent_fraction": (of_layers < 1).mean(axis=1).tolist(),
        }

    changed(objects, counted)
    axis = draw(data_of(objects), ["histogram"])["histogram"].axes[0]
    steps = {str(patch.get_label()): patch.get_data() for patch in axis.patches}
    texts = [text.get_text() for text in axis.get_legend().get_texts()]
    for label, every, said in zip(
        ("constrained", "plain training"), ratios.values(), texts, strict=True
    ):
        pooled = every.ravel()
        expected = 100 * np.histogram(pooled, edges)[0] / pooled.size
        np.testing.assert_allclose(steps[label].values, expected)
        _, mean, _, median, share, *_ = said.replace(",", "").split()
        assert float(mean) == pytest.approx(pooled.mean(), rel=5e-3)  # three digits are shown
        assert float(median) == pytest.approx(np.median(pooled), abs=0.02)  # the width of a bin
        assert float(share) == pytest.approx(100 * (pooled < 1).mean(), abs=0.05)


def test_the_median_of_counts_is_that_of_the_samples_within_a_bin() -> None:
    ratios = np.random.default_rng(0).uniform(0, 2, 999)
    counts = np.histogram(ratios, np.append(np.linspace(0, 2, 101), np.inf))[0]
    assert median_of(counts.tolist()) == pytest.approx(np.median(ratios), abs=0.01)


# --- the search -----------------------------------------------------------------------------------


def test_the_failure_is_the_infeasible_proposal_that_misses_most(objects: ObjectStore) -> None:
    worse = [0.5, 0.4, 0.7, 0.2]
    store_sweep(objects, {FIRST: [INFEASIBLE, worse, FEASIBLE], SECOND: [INFEASIBLE]})
    figure = draw(data_of(objects), ["failure"])["failure"]
    assert len(figure.axes) == 2  # the second setting's only proposal is shown already
    loss, score = map(drawn, figure.axes)
    assert loss["infeasible"] == ([0, 1, 2, 3], worse)
    assert loss["winner, or closest"][1] == FEASIBLE
    assert loss["plain training"][1] == PLAIN
    np.testing.assert_allclose(score["infeasible"][1], list(SCORES.values()))
    assert figure.axes[0].get_title() == f"{FIRST}\nwinner: proposal 2; infeasible: proposal 1"


def test_an_ablation_shows_every_proposal_and_the_range_of_its_seeds(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE, INFEASIBLE]})
    axis = draw(data_of(objects), ["ablation"])["ablation"].axes[0]
    near, far = axis.containers
    for container, gamma in ((near, "0.20"), (far, "0.40")):
        marks, _, (bars,) = container.lines
        np.testing.assert_allclose(marks.get_xdata().astype(float), [0.2, 0.2001])
        np.testing.assert_allclose(marks.get_ydata().astype(float), [SCORES[gamma]] * 2)
        for segment in bars.get_segments():  # stored: half a grey level to either side
            np.testing.assert_allclose(segment[:, 1], [SCORES[gamma] - 0.5, SCORES[gamma] + 0.5])
    joined = [line for line in axis.get_lines() if len(line.get_xdata()) == 2]
    assert len(joined) > 2  # alpha alone is searched: they differ in nothing else


def test_proposals_that_differ_in_more_are_not_joined(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE, FEASIBLE]})
    data = data_of(objects)
    other = data.proposals.assign(dual_lr=0.1 + data.proposals["proposal"])
    data = replace(data, searched=["alpha", "dual_lr"], proposals=other)
    by_alpha, by_dual_lr = draw(data, ["ablation"])["ablation"].axes
    for axis in (by_alpha, by_dual_lr):
        solid = [line for line in axis.get_lines() if line.get_linestyle() == "-"]
        assert not [line for line in solid if len(line.get_xdata()) > 1]


def test_importance_needs_five_proposals(objects: ObjectStore) -> None:
    objectives = {(FIRST, number): -0.1 * number for number in range(6)}
    came_to = [FEASIBLE] * 5 + [INFEASIBLE]
    store_sweep(objects, {FIRST: came_to, SECOND: [FEASIBLE] * 4}, objectives=objectives)
    (axis,) = draw(data_of(objects), ["importance"])["importance"].axes
    assert axis.get_title() == f"{FIRST}\nproposals: 5 feasible, 6 finished"
    bars = {bar.get_label(): [one.get_width() for one in bar] for bar in axis.containers}
    assert bars["objective"] == [pytest.approx(-1)]  # a larger alpha, a lower objective


@pytest.mark.parametrize("higher", [False, True])
def test_the_pareto_front_is_that_of_a_naive_search(higher: bool) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        scores = rng.integers(0, 6, (12, 2)).astype(float)  # small whole numbers: ties
        rows = pd.DataFrame(scores, columns=[SEEN, UNSEEN])
        rows["outcome"] = rng.choice(["feasible", "infeasible"], 12)
        losses = -scores if higher else scores
        feasible = losses[rows["outcome"] == "feasible"]
        naive = {
            tuple(one)
            for one in feasible
            if not any((other <= one).all() and (other < one).any() for other in feasible)
        }
        front = pareto_front(rows, higher)[[SEEN, UNSEEN]].to_numpy() * (-1 if higher else 1)
        assert [tuple(one) for one in front] == sorted(naive)


def test_a_mean_over_fewer_seeds_than_asked_for_says_so(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]})
    data = data_of(objects)
    entry = data.entries[FIRST]
    entry = replace(entry, seeds={"0": entry.seeds["0"]})
    figure = draw(replace(data, entries={FIRST: entry}), ["gains"])["gains"]
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == [f"{FIRST} (1 of 2 seeds)"]


# --- confirmations --------------------------------------------------------------------------------


def test_confirmed_gains_have_the_intervals_of_the_table(objects: ObjectStore) -> None:
    confirming.searched(objects)
    plan, definition = confirming.stored(objects)
    lead = {FIRST: 2.0, SECOND: -2.0}

    def score(setting: str, kind: str, seed: int) -> float:
        noise = 0.1 * (seed % 7) * (1 + (kind == "constrained"))
        return 10 + noise - lead[setting] * (kind == "constrained")

    confirming.trained(objects, definition, score)
    entry = summarize_confirmation(objects, definition, plan)
    figures = draw(data_of(objects), ["forest", "search-gain"])
    axis = figures["forest"].axes[0]
    lines = [list(line.get_xdata()) for line in axis.get_lines()]
    points = drawn(figures["search-gain"].axes[0])
    for one in entry.settings:
        contrast = one.against_plain
        assert [contrast.low, contrast.high] in lines
        assert [contrast.mean] in lines
        assert points[contrast.marked] == ([one.search_gain], [one.confirmed_gain])
    assert {"better", "worse"} <= set(drawn(axis))
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names == [f"{name},\nagainst plain" for name in (FIRST, SECOND)]


def test_points_that_coincide_share_their_label() -> None:
    places = {"ped2-L3": (0.10, 0.20), "ped2-L5": (0.101, 0.201), "ped2-L7": (0.10, 0.50)}
    assert _labels(places, near=0.02) == {(0.10, 0.20): "L3, L5", (0.10, 0.50): "L7"}


def test_a_record_of_before_ratios_were_counted_is_read(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]})
    signature = next(iter(load_sweep(objects, "tiny").arms))
    stored = ArmStore(objects).record(signature)
    assert stored is not None
    before = stored.to_json()
    for name in ("descent_ratio_counts", "descent_ratio_mean"):
        del before["evaluation"][name]
    assert ArmRecord.from_json(before) == stored
