"""Results of texts: accuracy is better the higher it is, objectives the lower."""

from __future__ import annotations

from dataclasses import replace

import pytest

from search_spaces import catalog
from search_spaces.space import Setting
from sweep.cost import estimate
from sweep.render.markdown import to_markdown
from sweep.results import aggregates
from sweep.results.tables.hyperparameters import hyperparameters_table
from sweep.results.tables.results import results_table
from sweep.results.tables.shifts import shifts_table
from sweep.study.feasibility import judge
from sweep.study.pairs import ProposalResult
from sweep.study.selection import select
from sweep.tracking.rows import TrackedArm, final_rows
from tests.support.proposals import pair as video_pair
from tests.support.proposals import proposal
from tests.support.records import SCALES
from tests.support.summaries import setting_summary
from tests.support.training.text_records import LOSSES, SPACE, TEXT, finished
from trainables.errors import InvalidValue
from trainables.records.arm_record import ArmRecord, Report
from trainables.registry.built_in import TASKS
from trainables.registry.find_plugins import model_spec
from trainables.registry.task_facts import ACCURACY, RMSE, TOKEN_ACCURACY
from trainables.signs.early_signs import EarlySigns


def test_every_task_says_its_metric_and_every_model_its_task() -> None:
    assert {name: spec.facts.metric for name, spec in TASKS.items()} == {
        "video_denoising": RMSE, "frame_denoising": RMSE, "text_classification": ACCURACY,
        "instruction_tuning": TOKEN_ACCURACY,
    }  # fmt: skip
    assert (RMSE.direction, ACCURACY.direction) == ("lower is better", "higher is better")
    assert model_spec("text_ut").task == model_spec("encoder").task == "text_classification"


def test_the_constant_alone_makes_useful_and_no_noise_is_no_obstacle() -> None:
    clean = replace(TEXT, train_gamma=0.0)
    assert TEXT.constraint is not None
    for config in (TEXT, clean):
        judged = judge([finished(config, LOSSES)], TEXT.constraint)
        assert judged is not None
        assert judged.beats_trivial
        assert judged.feasible
    at_chance = judge([finished(clean, [1.0, 1.0, 1.0, 1.0])], TEXT.constraint)
    assert at_chance is not None
    assert "constant prediction's 1" in at_chance.why_not_better
    # where the input is its own answer nothing beats it without noise
    assert not select("x", [proposal(0, video_pair([0.5, 0.4, 0.3, 0.2], gamma=0.0))]).winner


def test_of_texts_the_lower_objective_wins_which_is_the_higher_accuracy() -> None:
    from sweep.study.pairs import join

    baseline = finished(TEXT.unconstrained(), [1.0, 1.0, 1.0, LOSSES[-1]])  # misses the constraint
    better, worse = (
        ProposalResult(n, {}, (join(replace_objective(finished(TEXT, LOSSES), value), baseline),))
        for n, value in ((1, 0.2), (0, 0.3))
    )
    chosen = select("one", [worse, better])
    assert chosen.winner is not None
    assert chosen.winner.number == 1
    assert better.pairs[0].gains.mean_over_gammas == 0.0


def replace_objective(record: ArmRecord, value: float) -> ArmRecord:
    assert record.evaluation is not None
    return replace(record, evaluation=replace(record.evaluation, objective=value))


def test_an_entry_has_accuracy_and_probe_beside_the_loss_of_every_layer() -> None:
    arms = [finished(replace(TEXT, seed=s), LOSSES) for s in (0, 1)]
    entry = aggregates.arm_summary(arms, None, {}).to_json()
    assert entry is not None
    assert entry["layer_losses"] == pytest.approx(LOSSES)
    assert entry["layer_scores"] == pytest.approx([0.5, 0.6, 0.7, 0.8])  # at train_gamma
    assert entry["probe_losses"] == pytest.approx([0.9, 0.6, 0.4, 0.3])
    assert entry["probe_scores"] == pytest.approx([0.5, 0.7, 0.8, 0.9])
    assert (entry["ood_range"], entry["ood_step"]) == ([0.0, 0.8], 0.2)
    assert entry["seen_mean"] == pytest.approx((0.9 + 0.8 + 0.7 + 0.6) / 4)  # to 0.2 + 0.4
    assert entry["unseen_mean"] == pytest.approx(0.5)


def test_tables_name_the_metric_and_its_direction() -> None:
    ours, theirs = finished(TEXT, LOSSES), finished(TEXT.unconstrained(), LOSSES)
    entry = setting_summary(
        task=TEXT.task, model="encoder", model_variant="blocks", winner=False, why="a reason",
        gain={"mean_over_gammas": 0.01, "selection_biased": True},
        constrained=aggregates.arm_summary([ours], None, {}).to_json(),
        unconstrained=aggregates.arm_summary([theirs], None, {}).to_json(),
        references={
            name: one.to_json() for name, one in aggregates.reference_summaries([ours]).items()
        },
    )  # fmt: skip
    table = results_table(SPACE, [entry])
    (row,) = table.rows
    assert row["constrained_mean_accuracy"] == 0.7
    assert row["constant_mean_accuracy"] == pytest.approx(0.5)
    assert row["gain_mean_accuracy"] == 0.01
    assert row["constrained_probe_accuracy_by_layer"] == "0.5 0.7 0.8 0.9"
    assert (row["ood_auc_range"], row["ood_auc_step"]) == ("0.0 0.8", 0.2)
    assert not [name for name in row if "rmse" in name]
    text = to_markdown(table)
    assert "in fractions of samples; higher is better" in text
    assert "end at train gamma + 0.40" in text
    assert "| Constant | 0.500 |" in text
    assert "RMSE" not in text
    trained = hyperparameters_table(SPACE, [entry])
    assert not [name for name in trained.rows[0] if trained.rows[0][name] in (None, "")]
    assert "model_pooling" in trained.rows[0]  # a column of texts alone
    shifts = to_markdown(shifts_table(SPACE, [entry]))
    assert "of the clean word embeddings" in shifts
    assert "Wiener" not in shifts


def test_the_curves_over_depth_are_logged_by_layer() -> None:
    rows = final_rows(TrackedArm(record=finished(TEXT, LOSSES), sweep="s", setting="x", proposal=0))
    curves: dict[str, list[float]] = {}
    for row in rows:
        if row.key.startswith("descent/"):
            assert row.step == len(curves.setdefault(row.key, []))
            curves[row.key].append(row.value)
    assert curves == {
        "descent/curve": pytest.approx(LOSSES),
        "descent/accuracy_curve": pytest.approx([0.5, 0.6, 0.7, 0.8]),
        "descent/probe_curve": pytest.approx([0.9, 0.6, 0.4, 0.3]),
        "descent/probe_accuracy_curve": pytest.approx([0.5, 0.7, 0.8, 0.9]),
    }


def test_a_classifier_that_learns_nothing_is_told_so_and_trains_on() -> None:
    layers = {"missing_shares": [0.0] * 3, "violations": [-0.1] * 3, "multipliers": [0.0] * 3,
              "weights": [0.0, 0.0, 0.0, 1.0], "losses": [1.0, 1.0, 1.0, 1.01]}  # fmt: skip
    config = replace(TEXT, steps=100)
    reports = [Report(step=s, timestamp_ms=s, layers=layers) for s in (20, 40, 60)]
    signs = EarlySigns(config, SCALES, steps_per_epoch=10)
    assert signs.warnings(reports[:1]) == []
    (sign,) = signs.warnings(reports)
    assert "not below the constant prediction's" in sign
    assert signs.reason_to_stop(reports) == ""


def test_a_space_has_one_metric() -> None:
    with pytest.raises(InvalidValue, match=r"metric of base, accuracy .* got RMSE"):
        replace(SPACE, settings=(Setting("video", {
            "task": "video_denoising", "model.name": "ut", "model.checkpoint": None,
        }),))  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("model", ["ut", "distilbert", "roberta"])
def test_what_texts_cost_is_counted_without_a_checkpoint(model: str) -> None:
    space = catalog.find(f"text_classification_{model}").space
    for gpu in ("h100", "rtx3090"):
        found = estimate.estimate(catalog.only(space, ("imdb-*-g0.2", "mnli-*-g0.2")), gpu)
        assert 0.01 < found.device_hours < 100
        assert 1 < found.memory_gb < 40
    run = space.run(space.settings[0], {}, seed=0)
    assert not estimate.is_timed(run)
    # scored under three shifts of three severities besides
    plain = estimate.evaluated_samples(replace(run, shifts=()))
    assert estimate.evaluated_samples(run) / plain == pytest.approx((29 + 9) / 29)


def test_an_encoder_of_distilberts_size_has_its_operations() -> None:
    """6 blocks of width 768 on 230 tokens: 2 operations for each weight and token, and scores.

    Trained are the embeddings of 512 positions as well.
    """
    space = catalog.find("text_classification_distilbert").space
    work = estimate.work_of(space.run(space.settings[0], {}, seed=0))
    assert work.parameters == pytest.approx(6 * 7.088e6 + 512 * 768, rel=0.001)
    assert work.forward_flops == pytest.approx(2 * 230 * work.parameters, rel=0.1)
