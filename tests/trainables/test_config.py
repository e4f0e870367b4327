"""Configs: validation with advice, round trips, a signature of what matters and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.settings import Setting
from tests.support.oracles import TINY
from trainables.config import arm as config_module
from trainables.config.arm import (
    ArmConfig,
    ConstraintConfig,
    DataConfig,
    ModelConfig,
    field_names,
)
from trainables.config.mended import MENDED
from trainables.config.renamed import FIRST_NAMES
from trainables.errors import InvalidValue, UnknownName
from trainables.plain import with_names
from trainables.primal_dual.constraints import demanded_descent
from trainables.registry.built_in import TASKS
from trainables.registry.task_facts import INSTRUCTION_DATA


def test_every_field_survives_the_json_round_trip() -> None:
    for config in (TINY, TINY.unconstrained(), ArmConfig()):
        assert ArmConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"constraint.alpha": 1.5}, "constraint.alpha must be in (0, 1), got 1.5"),
        ({"shifts": "blur"}, 'shifts must be a list like ["blur"], got'),
        ({"constraint.alpha": "much"}, "alpha must be a finite number, got 'much'"),
        ({"constraint.alpha": float("nan")}, "alpha must be a finite number"),
        ({"steps": 0}, "steps must be positive, got 0"),
        ({"steps": 1.5}, "steps must be a whole number, got 1.5"),
        ({"steps": True}, "steps must be a whole number, got True"),
        ({"constraint.warmup_steps": 41}, "warmup_steps must be at most steps (40), got 41"),
        ({"data.frame_size": 30}, "frame_size must be a positive multiple of patch_size 4, got 30"),
        ({"test_gammas": [0.2, 0.1]}, "test_gammas must be at least two rising numbers"),
        ({"test_gammas": [0.1, 0.125]}, "numbers of at most two decimals"),
        (
            {"train_gamma": 0.123, "test_gammas": [0.0, 0.12]},
            "train_gamma must be a test gamma, or another one to two decimals",
        ),
        ({"model.layers": 1}, "at least 2 in a constrained run with reference 'bound_first', got"),
        ({"constraint.alpha": 0.99, "model.layers": 20}, "(1 - alpha)^20 exceeds 1e-12"),
        ({"primal_lr": 10**400}, "primal_lr must be a finite number"),
        ({"model.variant": "sharpest"}, "variant must be one of 'distance', 'sharp', 'literal'"),
        ({"constraint.resilience": -1}, "resilience must be at least 0, got -1.0"),
        (
            {"constraint.dual_lr": 2.0, "constraint.resilience": 1.0},
            "dual_lr x resilience must be below 1",
        ),
        ({"data": 3}, "unknown field 'data'"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises((InvalidValue, UnknownName)) as caught:
        TINY.with_fields(fields)
    assert message in str(caught.value)


def test_an_unknown_field_names_the_closest() -> None:
    with pytest.raises(UnknownName, match=r"Did you mean 'constraint\.alpha'"):
        TINY.with_fields({"constraint.alhpa": 0.1})
    with pytest.raises(UnknownName, match="unknown field of ConstraintConfig 'alhpa'"):
        ConstraintConfig.from_json({"alhpa": 0.1})


def test_the_signature_ignores_where_the_data_lie_and_nothing_else() -> None:
    default, there = ArmConfig(), ArmConfig(data=DataConfig(folder="/elsewhere"))
    assert default.signature() == there.signature()
    elsewhere = TINY.with_fields({"data.folder": "/another/disk"})
    assert elsewhere.signature() == TINY.signature()
    assert len(TINY.signature()) == 16
    assert TINY.signature() != TINY.unconstrained().signature()


OTHER_VALUES = {
    "task": None,
    "data.name": "ucsd_ped2", "data.folder": None, "data.frame_size": 64, "data.patch_size": 8,
    "data.frames": 4, "data.stride": 2, "data.dev_fraction": 0.5, "data.max_clips": 3,
    "data.fingerprint": "x",
    "model.name": "dust", "model.layers": 4, "model.variant": "literal",
    "model.atoms_per_side": 8, "model.threshold": 0.02, "model.start_jitter": 0.1,
    "data.split_by_seed": True, "data.shuffle_by": "window", "constraint.warmup_epochs": 1,
    "model.checkpoint": "other", "model.checkpoint_fingerprint": "x",
    "train_gamma": 0.2, "test_gammas": [0.0, 1.0],
    "train_gamma_low": 0.1, "train_gamma_high": 0.3, "score_draws": 2,
    "seed": 7, "steps": 41, "batch_size": 9, "primal_lr": 0.5, "decay_fraction": 0.5,
    "grad_clip": 2.0,
    "measured_on": "test", "report_every": 11, "eval_windows": 5, "eval_draws": 3,
    "dtype": "float64", "device": "cuda", "threads": 2,
    "constraint.alpha": 0.3, "constraint.reference": "virtual_layer0",
    "constraint.reference_loss": 2.0, "constraint.reference_unit": "absolute",
    "constraint.scale": "none", "constraint.grad_through_previous": False,
    "constraint.dual_optimizer": "adam", "constraint.dual_signal": "violation",
    "constraint.signal_clip": None, "constraint.dual_lr": 0.5, "constraint.resilience": 0.5,
    "constraint.dual_kp": 0.5, "constraint.dual_penalty": 0.5,
    "constraint.inner_tokens": 0.5,
    "constraint.warmup_steps": 3, "constraint.form": "ratio",
    "constraint.resilience_form": "slack", "constraint.dual_every": 2,
    "constraint.dual_every_unit": "epoch",
    "constraint.inner_layers": 1,
    "constraint.weights_by": "last_layer",
    "constraint.supervision": 0.5, "constraint.supervision_decay": 0.5, "constraint.penalty": 2.0,
    "constraint.replayed_weights": [0.0, 0.5, 0.5, 1.0],
    "weight_ema": 0.9, "early_stop": False, "shifts": ["blur"],
    "model.lora_rank": 4, "model.recompute": True,
    "model.pooling": "mean", "data.max_length": 64, "data.max_items": 100, "readout_lr": 0.01,
    "data.template": "plain",
    "warmup_fraction": 0.1, "weight_decay": 0.01, "accumulate": 2,
}  # fmt: skip
VIT = {"model.name": "vit", "model.checkpoint": "one", "task": "frame_denoising"}
TEXT: dict[str, object] = {
    "task": "text_classification", "model.name": "encoder", "model.checkpoint": "one",
    **dict.fromkeys(("data.frame_size", "data.patch_size", "data.frames", "data.stride")),
}  # fmt: skip
TEXT |= {n: DataConfig().to_json()[n.removeprefix("data.")] for n in TEXT if "data." in n}
TEXT["constraint.reference_unit"] = "constant"
INSTRUCTIONS = TEXT | {"task": "instruction_tuning", "model.name": "decoder", "data.name": "alpaca"}
DRAWN = INSTRUCTIONS | {"constraint.inner_layers": 1, "constraint.dual_signal": "violation"}
SUPERVISED = {"constraint.weights_by": "deep_supervision"}
OF_MODEL = {  # what a run needs beside a field that only one model or setter of weights has
    "constraint.supervision": SUPERVISED, "constraint.supervision_decay": SUPERVISED,
    "constraint.inner_tokens": INSTRUCTIONS,
    "constraint.inner_layers": INSTRUCTIONS | {"constraint.dual_signal": "violation"},
    "data.template": INSTRUCTIONS,
    "constraint.penalty": {"constraint.weights_by": "penalty"},
    "constraint.dual_kp": {"constraint.dual_optimizer": "nupi"},
    "constraint.dual_penalty": {"constraint.dual_optimizer": "augmented"},
    "constraint.replayed_weights": {
        "constraint.weights_by": "replayed", "constraint.replayed_weights": [0.0, 0.0, 0.0, 1.0],
    },
    "model.atoms_per_side": {"model.name": "dust"},
    "model.threshold": {"model.name": "dust"},
    "model.checkpoint": VIT, "model.checkpoint_fingerprint": VIT,
    "model.lora_rank": TEXT, "model.recompute": TEXT,
    "model.pooling": TEXT, "data.max_length": TEXT, "data.max_items": TEXT, "readout_lr": TEXT,
}  # fmt: skip


@pytest.mark.parametrize("name", field_names())
def test_every_field_but_the_folder_changes_the_signature(name: str) -> None:
    value = OTHER_VALUES[name]
    if value is None and name != "constraint.signal_clip":
        pytest.skip("this field has one value, or is a place")
    base = TINY.with_fields({"constraint.resilience": 0.1, **OF_MODEL.get(name, {})})
    changed = base.with_fields({name: value})
    assert changed != base
    assert changed.signature() != base.signature()
    assert (
        changed.unconstrained().signature() == base.unconstrained().signature()
    ) == name.startswith("constraint.")


def test_stored_configurations_may_have_options_that_were_removed_and_did_nothing() -> None:
    plain = TINY.to_json()
    idle = {
        "violation_ema": 0.0, "alpha_ramp_steps": 0, "dual_penalty_growth": 1.0, "dual_noise": None,
    }  # fmt: skip
    stored = {**plain, "constraint": {**plain["constraint"], **idle}}
    assert ArmConfig.from_json(stored) == TINY
    stored["constraint"]["violation_ema"] = 0.5
    with pytest.raises(InvalidValue, match=r"violation_ema must be 0\.0, got 0\.5: .* removed"):
        ArmConfig.from_json(stored)
    for name in idle:
        with pytest.raises(InvalidValue, match=rf"field 'constraint\.{name}': .* removed\.$"):
            TINY.with_fields({f"constraint.{name}": 1})


def test_renamed_fields_are_read_from_files_keep_signatures_and_are_refused_by_hand() -> None:
    named = {"warmup_fraction": 0.1, "decay_fraction": 0.5, "data.dev_fraction": 0.1}
    config = ArmConfig().with_fields(named)
    assert config.signature() == "02ef7f1569f681e4"  # of before
    stored = with_names(config.to_json(), FIRST_NAMES)
    assert {"warmup_share", "decay_share"} <= stored.keys()
    assert "dev_share" in stored["data"]
    assert ArmConfig.from_json(stored) == config
    for name in named:
        first = FIRST_NAMES[name]
        with pytest.raises(InvalidValue, match=f"field '{first}': it is called {name} now"):
            config.with_fields({first: 0.3})
    with pytest.raises(InvalidValue, match="'decay_share': it is called decay_fraction now"):
        ArmConfig(decay_share=0.3)  # type: ignore[call-arg]
    with pytest.raises(InvalidValue, match="'dev_share': it is called dev_fraction now"):
        DataConfig(dev_share=0.3)  # type: ignore[call-arg]
    with pytest.raises(InvalidValue, match="decay_share is called decay_fraction now, got both"):
        ArmConfig.from_json({"decay_share": 0.3, "decay_fraction": 0.5})
    with pytest.raises(InvalidValue, match="dev_share is called dev_fraction now, got both"):
        ArmConfig.from_json({"data": {"dev_share": 0.3, "dev_fraction": 0.5}})


def test_a_template_is_in_the_signature_and_others_leave_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = TINY.with_fields(TEXT)
    with pytest.raises(InvalidValue, match=r"data\.template must be left at 'alpaca' in text"):
        base.with_fields({"data.template": "plain"})
    with pytest.raises(InvalidValue, match="template must be one of 'alpaca', 'plain', got 'vic"):
        base.with_fields({"data.template": "vicuna"})
    spec = TASKS["text_classification"]
    facts = replace(spec.facts, data=INSTRUCTION_DATA, answers=True)
    monkeypatch.setitem(TASKS, "text_classification", replace(spec, facts=facts))
    assert facts.data_group == "instructions"
    plain = base.with_fields({"data.template": "plain"})
    assert plain.signature() != base.signature()
    assert base.with_fields({"data.template": "alpaca"}).signature() == base.signature()


def test_defaults_are_pinned(golden: Callable[[str, str], None]) -> None:
    """With another one, stored signatures mean other arms: raise TRAINING_VERSION as well."""
    defaults = ArmConfig(constraint=ConstraintConfig()).to_json()
    versioned = {"training_version": config_module.TRAINING_VERSION, **defaults}
    golden("defaults.json", json.dumps(versioned, indent=1) + "\n")


def test_a_field_at_its_default_is_not_in_the_signature() -> None:
    text = '{"config": {"constraint": {}, "model": {"variant": "distance"}, "test_gammas": '
    text += json.dumps(list(ArmConfig().test_gammas)) + '}, "training_version": %d}'
    constrained = ArmConfig(constraint=ConstraintConfig())
    wanted = hashlib.sha256((text % config_module.TRAINING_VERSION).encode()).hexdigest()[:16]
    assert constrained.signature() == wanted != ArmConfig().signature()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model.variant": "paper"}, "variant must be one of 'distance', 'sharp', 'literal' for"),
        ({"model.threshold": 0.5}, "threshold must be left at 0.01 for ut, got 0.5: only dust"),
        ({"model.name": "vit"}, "checkpoint must be the name or folder"),
        ({**TEXT, "model.checkpoint": None}, "of a Hugging Face model where model.name is"),
        ({**TEXT, "task": "video_denoising"}, "'text_classification' for model encoder"),
        ({**TEXT, "data.frames": 7}, "data.frames must be left at 10 in text_classification"),
        ({**TEXT, "shifts": ["blur"]}, "shifts must be without 'blur' in text_classification"),
        (
            {"shifts": ["typos"]},
            "it takes blur, salt_and_pepper, brightness, compression, occlusion, frame_drop",
        ),
        ({"data.max_length": 64}, "data.max_length must be left at 256 in video_denoising"),
        ({"model.pooling": "mean"}, "pooling must be left at None for ut"),
        ({"readout_lr": 0.1}, "readout_lr must be left at None in video_denoising"),
        ({**TEXT, "constraint.reference_unit": "identity"}, "the unchanged input is no prediction"),
        ({"accumulate": 5}, "accumulate must be a positive divisor of batch_size 8"),
        ({"accumulate": 2, "constraint.form": "ratio"}, "accumulate must be 1 with form 'ratio'"),
        ({"warmup_fraction": 0.5, "decay_fraction": 0.6}, "with decay_fraction 0.6 at most 1"),
        ({"task": "frame_denoising"}, "task must be 'video_denoising' for model ut"),
        ({"constraint.resilience_form": "slack"}, "resilience must be positive with"),
        ({"data.frames": 1, "shifts": ["frame_drop"]}, "without 'frame_drop' where a sample is"),
        (
            INSTRUCTIONS | {"constraint.inner_layers": 1},
            "None but with form 'difference' and dual_",
        ),
        (DRAWN | {"constraint.weights_by": "penalty"}, "inner_layers must be None with weights_by"),
        (DRAWN | {"constraint.dual_optimizer": "augmented"}, "their weights follow the drawn"),
        (
            DRAWN
            | {
                "constraint.weights_by": "replayed",
                "constraint.replayed_weights": [0.1, 0.0, 0.0, 1.0],
            },
            "inner_layers must be None where replayed_weights has a weight of layer 0",
        ),
        (
            {
                "task": "frame_denoising",
                "model.name": "vit",
                "model.checkpoint": "one",
                "shifts": ["blur", "frame_drop"],
            },
            "without 'frame_drop' in frame_denoising",
        ),
    ],
)
def test_fields_that_belong_together_are_checked_together(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidValue, match=message):
        TINY.with_fields(fields)


def test_the_fingerprint_of_a_checkpoint_stands_for_where_it_lies() -> None:
    here = TINY.with_fields({**VIT, "model.checkpoint_fingerprint": "f00d"})
    there = here.with_fields({"model.checkpoint": "two"})
    assert here.signature() == there.signature()
    assert here.signature() != TINY.with_fields(VIT).signature()


def test_frames_may_be_lost_from_a_sequence() -> None:
    assert TINY.with_fields({"data.frames": 2, "shifts": ["frame_drop"]}).shifts == ("frame_drop",)


def test_another_model_starts_with_its_own_default_variant() -> None:
    assert TINY.with_fields({"model.name": "dust"}).model.variant == "per_layer"
    assert TINY.with_fields({"model.name": "dust"}).model == ModelConfig(name="dust", layers=3)


def test_what_a_classifier_reads_of_a_layer_has_a_default_by_model() -> None:
    encoder = TINY.with_fields(TEXT)
    assert encoder.model.pooling == "cls"
    assert encoder.with_fields({"model.name": "text_ut"}).model.pooling == "mean"
    assert encoder.with_fields({"model.pooling": "mean"}).model.pooling == "mean"
    assert TINY.model.pooling is None


def test_the_depth_of_an_encoder_may_be_left_to_its_checkpoint() -> None:
    assert TINY.with_fields({**TEXT, "model.layers": 0}).model.layers == 0
    with pytest.raises(InvalidValue, match=r"layers must be in 1\.\.64, got 0"):
        TINY.with_fields({"model.layers": 0})


def test_a_new_training_version_changes_every_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    before = TINY.signature()
    monkeypatch.setattr(config_module, "TRAINING_VERSION", config_module.TRAINING_VERSION + 1)
    assert TINY.signature() != before


@given(
    st.dictionaries(
        st.sampled_from(field_names()),
        st.none() | st.integers() | st.floats() | st.text(max_size=5),
    )
)
def test_whatever_is_set_gives_a_config_or_one_of_our_errors(fields: dict[str, object]) -> None:
    changed: ArmConfig | None = None
    refusal = ""
    try:
        changed = TINY.with_fields(fields)
    except (InvalidValue, UnknownName) as error:
        refusal = str(error)
    if changed is None:
        assert refusal
    else:
        assert ArmConfig.from_json(changed.to_json()) == changed


def test_an_unconstrained_run_can_be_given_a_constraint_by_field() -> None:
    given_back = TINY.unconstrained().with_fields({"constraint.alpha": 0.4})
    assert given_back.constraint == ConstraintConfig(alpha=0.4)
    assert replace(TINY, data=DataConfig()).data.folder is None


@pytest.mark.parametrize("gamma", [0.2 * 3, 0.1 + 0.2, 0.7 * 0.3, -0.0, 0.05 * 3])
def test_a_gamma_that_was_computed_is_the_one_of_two_decimals(gamma: float) -> None:
    named = round(gamma, 2) + 0.0
    for name in ("train_gamma", "train_gamma_low", "train_gamma_high"):
        others = {"train_gamma_low": 0.0, "train_gamma_high": 1.0}
        made = TINY.with_fields({**others, name: gamma})
        assert repr(made.value_of(name)) == repr(named)
        assert made.signature() == TINY.with_fields({**others, name: named}).signature()
    grid = ArmConfig(train_gamma=0.0, test_gammas=tuple(sorted({gamma, 0.9, 0.1 * 8})))
    assert repr(grid.test_gammas) == repr(tuple(sorted({named, 0.8, 0.9})))


def test_a_gamma_next_to_none_is_not_taken_for_none() -> None:
    with pytest.raises(InvalidValue, match="train_gamma must be a test gamma, or another one"):
        TINY.with_fields({"train_gamma": 1e-12})
    with pytest.raises(InvalidValue, match="numbers of at most two decimals"):
        TINY.with_fields({"test_gammas": [0.0, 0.1000001]})


@pytest.mark.parametrize("reference", ["virtual_layer0", "bound_zero"])
def test_one_layer_may_answer_to_f0(reference: str) -> None:
    run = TINY.with_fields({"model.layers": 1, "constraint.reference": reference})
    assert demanded_descent(run.constraint, 1) == pytest.approx(run.constraint.alpha)


def test_arms_that_a_mended_fault_changed_have_other_signatures_and_no_others() -> None:
    """Their fields alone would give those that were stored before."""

    def by_fields(run: ArmConfig) -> str:
        content = {"training_version": config_module.TRAINING_VERSION, "config": run.changed()}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    large = TINY.with_fields({"data.patch_size": 16})  # whose transform is not folded
    plain = {"train_gamma": 0.0, "constraint.reference_unit": "constant"}
    text = {**TEXT, "data.max_items": 40}
    changed = [{"train_gamma": 0.0, "test_gammas": grid} for grid in ([0.0, 0.1], [0.01, 0.05])]
    changed += [text | {"data.split_by_seed": True}, {"data.patch_size": 4}, {"device": "cuda"}]
    same = [{}, plain | {"test_gammas": [0.0, 0.05, 0.3]}, {"test_gammas": [0.0, 0.1]}, text]
    same += [{"data.split_by_seed": True}, {**TEXT, "data.split_by_seed": True}]
    same += [{**TEXT, "train_gamma": 0.0, "test_gammas": [0.0, 0.1]}]
    same += [{"data.patch_size": 4, "model.variant": "literal"}]
    same += [{"data.patch_size": 4, "model.name": "dust", "model.variant": "per_layer"}]
    same += [{"data.patch_size": 4, "dtype": "bfloat16"}]
    for fields in changed + same:
        run = large.with_fields(fields)
        assert (run.signature() == by_fields(run)) == (fields in same), fields
        assert set(run.mended()) <= MENDED.keys()
        before = run.signature()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(config_module, "TRAINING_VERSION", config_module.TRAINING_VERSION + 1)
            assert run.signature(config_module.TRAINING_VERSION - 1) == before  # the name it had


def test_many_known_names_are_cut_to_the_closest() -> None:
    known = [f"setting-{number}" for number in range(60)]
    text = str(UnknownName.among("setting", "setting-599", known))
    assert "the closest of 60: " in text
    assert "setting-59" in text
    assert text.count("setting-") < 20


def test_a_run_is_scored_at_its_tasks_gammas_unless_it_names_others() -> None:
    video = ArmConfig()
    assert (video.test_gammas[0], video.test_gammas[-1], len(video.test_gammas)) == (0.0, 0.5, 11)
    to_text = {
        "task": "text_classification",
        "data.name": "imdb",
        "model.name": "encoder",
        "model.checkpoint": "some/encoder",
    }
    text = video.with_fields(to_text)
    assert (text.test_gammas[0], text.test_gammas[-1], len(text.test_gammas)) == (0.0, 2.0, 11)
    assert ArmConfig.from_json(text.to_json()) == text
    named = video.with_fields({"test_gammas": [0.0, 0.3]})
    assert named.with_fields(to_text).test_gammas == (0.0, 0.3)
    assert video.with_fields(to_text | {"test_gammas": [0.0, 1.0]}).test_gammas == (0.0, 1.0)


@pytest.mark.parametrize(
    ("make", "wrong", "meant"),
    [
        (ModelConfig, "layer", "layers"),
        (DataConfig, "fodler", "folder"),
        (ArmConfig, "step", "steps"),
        (ConstraintConfig, "alhpa", "alpha"),
        (Setting, "n_proposal", "n_proposals"),
    ],
)
def test_a_keyword_that_is_no_field_is_answered_with_the_nearest(
    make: type, wrong: str, meant: str
) -> None:
    with pytest.raises(UnknownName, match=f"unknown field .* Did you mean '{meant}'"):
        make(**{wrong: 4})
