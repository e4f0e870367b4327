"""Departures from the paper beside its numbers: all, and none where it is kept."""

from __future__ import annotations

import pytest

from search_spaces import catalog
from search_spaces.paper.departures import departures
from search_spaces.paper.published import COMPARISONS, not_alike, protocol, published
from tests.support.command_line import sweep
from trainables.config.arm import ArmConfig

SAID = {  # what must be said of a field that departs
    "data.frames": "sequences have 10 frames",
    "decay_fraction": "a learning rate that falls over 20% of the steps",
    "constraint.dual_optimizer": "multipliers move by projected SGD",
    "constraint.dual_signal": "the violation over the loss allowed",
    "constraint.signal_clip": "the violation, clipped at 1;",
    "constraint.scale": "divided by a schedule of losses",
    "constraint.resilience_form": "resilience is a decay of the multipliers",
    "constraint.warmup_epochs": "constraints act from the first step",
    "grad_clip": "gradients clipped at 1",
    "constraint.alpha": "alpha and f0 are searched",
    "constraint.reference_loss": "alpha and f0 are searched",
    "constraint.reference_unit": "alpha and f0 are searched",
}


def first(space: str, part: str) -> ArmConfig:
    found = catalog.find(space).space
    setting = next(s for s in found.settings if part in s.name)
    return found.run(setting, {}, seed=0)


@pytest.mark.parametrize("name", SAID)
def test_every_field_that_departs_is_told(name: str) -> None:
    ours = first("video_denoising_ut", "ucsd_ped2-ut-L3-g0.15")
    faithful = first("paper_video_ut", "ucsd_ped2-ut-L3-g0.15")
    told = "; ".join(departures(faithful.with_fields({name: ours.value_of(name)})))
    assert SAID[name] in told
    assert departures(faithful) == ()


def test_another_warm_up_is_told_with_its_length() -> None:
    faithful = first("paper_video_ut", "ucsd_ped2-ut-L3-g0.15")
    both = faithful.with_fields({"constraint.warmup_steps": 100, "constraint.warmup_epochs": 2})
    assert departures(both) == (
        "constraints act after 100 steps and 2 epochs; the paper's after an epoch",
    )


@pytest.mark.parametrize(
    ("space", "part", "told"),
    [
        ("video_denoising_dust", "-L3-", ("576 atoms", "slack variables, set to zero after every")),
        ("video_denoising_vit", "vit", ("no dropout",)),
        (
            "text_classification_roberta",
            "mnli",
            (
                "embeddings are frozen",
                "no dropout",
                "bfloat16",
                "AdamW",
                "for the readout",
                "rises",
            ),
        ),
        ("instruction_tuning_llama", "alpaca", ("means over all tokens", "bfloat16", "no dropout")),
    ],
)
def test_models_say_their_own(space: str, part: str, told: tuple[str, ...]) -> None:
    found = "; ".join(departures(first(space, part)))
    assert all(text in found for text in told), found


def test_every_printed_number_comes_with_what_is_not_alike() -> None:
    for one in COMPARISONS:
        run = first(one.space, one.setting)
        if (found := published(run)) is None:
            continue  # an encoder whose depth only its checkpoint says
        reasons = not_alike(run, found)
        assert set(departures(run)) <= set(reasons)
        assert protocol(run) in reasons
        assert ("five seeds" in protocol(run)) == run.facts.reads_texts


@pytest.mark.long("the cost of a space is timed")
def test_the_command_line_tells_them_beside_the_published_numbers() -> None:
    told = " ".join(sweep("spaces", "video_denoising_ut").output.split())
    assert "differs: multipliers move by projected SGD; the paper's by ADAM." in told
    assert "differs: pairs share their seeds" in told
