"""The paper's own spaces: its rows, its printed values, and nothing that differs unsaid."""

from __future__ import annotations

from typing import Any

import pytest

from search_spaces import catalog
from search_spaces.paper import text, video
from search_spaces.paper.departures import departures
from search_spaces.paper.published import COMPARISONS, published
from search_spaces.paper.spaces import LONGEST_REPORT, PAPER_SPACES, SEARCHED, twin
from search_spaces.space import SearchSpace
from trainables.config.arm import ArmConfig

NO_DROPOUT = "there is no dropout; the paper's networks have that of their checkpoints"
FROZEN = "word embeddings are frozen in both arms; the paper fine-tunes all weights"
SIX = "DistilBERT has 6 blocks; in the paper's tables it has 12"
CHOSEN = (
    "alpha and f0 are searched or chosen for this setting; the paper prints none for this model"
)
LEFT = {  # what no field can set as the paper has it
    "paper_video_ut": set(),
    "paper_video_dust": set(),
    "paper_video_vit": {NO_DROPOUT},
    "paper_text_ut": set(),
    "paper_text_distilbert": {NO_DROPOUT, FROZEN, SIX},
    "paper_text_roberta": {NO_DROPOUT, FROZEN, CHOSEN},
}


def runs_of(space: SearchSpace) -> list[ArmConfig]:
    return [space.run(setting, {}, seed=0) for setting in space.settings]


@pytest.mark.parametrize("name", LEFT)
def test_a_paper_space_departs_in_what_no_field_can_set(name: str) -> None:
    assert set(LEFT) == set(PAPER_SPACES)
    for run in runs_of(catalog.find(name).space):
        assert set(departures(run)) == LEFT[name]


def test_the_spaces_have_every_row_of_the_two_tables() -> None:
    named = {s.name for space in PAPER_SPACES.values() for s in space.settings}
    assert named == {one.setting for one in COMPARISONS}
    assert len(named) == sum(len(space.settings) for space in PAPER_SPACES.values())
    for name, space in PAPER_SPACES.items():
        for setting, run in zip(space.settings, runs_of(space), strict=True):
            cell = published(run)
            if run.model.name != "encoder":  # known by its checkpoint, whatever is printed
                assert cell is not None
                assert cell.setting == setting.name, name


def test_alpha_and_f0_are_those_of_tables_1_and_2() -> None:
    for model, best in video.BEST.items():
        for run in runs_of(PAPER_SPACES[f"paper_video_{model}"]):
            assert run.constraint is not None
            assert run.constraint.alpha == pytest.approx(1 - best.kept_fraction)
            unit = 0.25 if model == "vit" else 1.0  # of [-1, 1] squared in [0, 1] squared
            assert run.constraint.reference_loss == pytest.approx(best.reference_loss * unit)
    for (model, data), row in text.BEST.items():
        for run in runs_of(PAPER_SPACES[f"paper_text_{model}"]):
            if run.data.name == data:
                assert run.constraint is not None
                assert run.constraint.alpha == pytest.approx(1 - row.kept_fraction)
                assert run.constraint.reference_loss == row.reference_loss


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("paper_video_ut", {"constraint.grad_through_previous": False}),
        ("paper_video_ut", {"constraint.form": "ratio"}),
        ("paper_video_ut", {"constraint.reference": "virtual_layer0"}),
        ("paper_video_ut", {"constraint.dual_every": 10}),
        ("paper_video_ut", {"constraint.weights_by": "deep_supervision"}),
        ("paper_video_ut", {"train_gamma_high": 0.4}),
        ("paper_video_ut", {"data.patch_size": 8}),
        ("paper_video_ut", {"data.max_clips": 2}),
        ("paper_video_ut", {"data.name": "photographs"}),
        ("paper_video_ut", {"model.start_jitter": 0.1}),
        ("paper_text_ut", {"data.max_items": 500}),
        ("paper_text_ut", {"constraint.warmup_steps": 5}),
        ("paper_text_ut", {"constraint.alpha": 0.2}),
        ("paper_text_distilbert", {"model.lora_rank": 8}),
        # UT's values are not DistilBERT's
        ("paper_text_distilbert", {"constraint.alpha": 0.1, "constraint.reference_loss": 0.9}),
    ],
)
def test_every_change_of_a_paper_space_is_told(name: str, values: dict[str, Any]) -> None:
    (run, *_) = runs_of(PAPER_SPACES[name])
    before, after = departures(run), departures(run.with_fields(values))
    assert len(after) == len(before) + 1, after


def test_no_space_is_silent_for_an_hour() -> None:
    for space in PAPER_SPACES.values():
        assert max(run.report_every for run in runs_of(space)) <= LONGEST_REPORT


@pytest.mark.parametrize("model", video.BEST)
def test_video_is_searched_once_a_model_and_reused(model: str) -> None:
    space = PAPER_SPACES[f"paper_video_{model}"]
    searched = [s for s in space.settings if space.proposals_of(s) > 1]
    assert len(searched) == 1
    run = space.run(searched[0], {}, seed=0)
    assert (run.data.name, run.train_gamma) == SEARCHED


def test_steps_of_the_searched_data_can_be_set() -> None:
    space = catalog.only(PAPER_SPACES["paper_video_ut"], ["ucsd_ped2-*"])
    assert catalog.with_values(space, {"steps": 7}).base.steps == 7


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        ("quickstart", {"paper_video_ut"}),
        ("ped2_dust", {"paper_video_ut", "paper_video_dust"}),
        ("video_denoising_vit", {"paper_video_vit"}),
        ("minilm_imdb", {"paper_text_ut", "paper_text_distilbert"}),
        ("text_classification_roberta", {"paper_text_roberta"}),
        ("alpaca_small", {""}),
    ],
)
def test_every_model_has_its_space_in_the_papers_words(space: str, expected: set[str]) -> None:
    assert {twin(run) for run in runs_of(catalog.find(space).space)} == expected
