"""Configuration of one arm: a frozen, validated dataclass, and its signature.

A pair is this description twice: ``(config, config.unconstrained())``. Nothing here imports torch,
so search spaces and the command line load in milliseconds.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from trainables.config.constraint import REMOVED, default_constraint
from trainables.config.constraint import ConstraintConfig as ConstraintConfig
from trainables.config.data import DataConfig as DataConfig
from trainables.config.fields import NotNegative, Positive, Rule, Section, named_gamma
from trainables.config.mended import FOLDED_PATCH, IDENTITY_GAMMA
from trainables.config.model import ModelConfig as ModelConfig
from trainables.config.renamed import FIRST_NAMES, RENAMED
from trainables.errors import RemovedOption, UnknownName, require
from trainables.plain import Json, with_names
from trainables.registry.find_plugins import facts_of, model_spec
from trainables.registry.task_facts import INSTRUCTION_DATA, VIDEO_DATA, TaskFacts

# Raised by hand whenever the same config would train to other numbers than before. A test fails
# when the golden losses change and this number does not.
TRAINING_VERSION = 2

Shift = Literal[
    "blur", "salt_and_pepper", "frame_drop", "brightness", "compression", "occlusion",
    "token_drop", "token_swap", "typos",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ArmConfig(Section):
    """One arm. ``constraint=None`` is the unconstrained arm: the same run in everything else."""

    task: str = "video_denoising"  # one of registry/built_in.py, or a plug-in's
    # ^ sequences of co-located patches; or whole frames, one by one (vit); or texts with labels
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train_gamma: NotNegative[float] = 0.15
    # ^ noise std over the clean data's (word embeddings') std: in training, and where an arm is
    #   judged
    train_gamma_low: NotNegative[float | None] = None
    train_gamma_high: NotNegative[float | None] = None
    # ^ in training alone: the gamma of each sample, drawn anew between the two; None: train_gamma
    test_gammas: tuple[float, ...] = ()  # what it is scored at; empty: those of the task's facts
    seed: NotNegative[int] = 0  # keys every random draw: weights, batches, noise
    steps: Positive[int] = 1000  # primal steps, warm-up included
    batch_size: Positive[int] = 32  # samples of a primal step
    accumulate: int = 1  # its parts that pass the network one by one: less memory, the same step
    primal_lr: Positive[float] = 1e-3  # Adam
    readout_lr: Positive[float | None] = None
    # ^ text: of the readout, which starts untrained; None: primal_lr
    weight_decay: NotNegative[float] = 0.0  # AdamW's, on matrices, no biases or norms; 0: Adam
    warmup_fraction: float = 0.0  # over it both learning rates rise linearly
    decay_fraction: Annotated[float, Rule(lambda share: 0 <= share <= 1, "in [0, 1]")] = 0.2
    # ^ and fall linearly to 0 over this last fraction
    grad_clip: Positive[float | None] = 1.0
    # ^ largest global norm of the primal gradient; None: as in the paper, gradients as they are
    report_every: Positive[int] = 100  # steps between reports; each is followed by a checkpoint
    eval_windows: Positive[int] = 24
    # ^ at most so many held-out units in reports and the final result: windows of frames; in text,
    #   reviews or premises with all their hypotheses. Of the test split all are evaluated
    measured_on: Literal["dev", "test"] = "dev"  # the final result; reports are always of dev
    eval_draws: Positive[int] = 4  # noise draws per unit for feasibility, averaged before judging
    score_draws: Positive[int] = 1  # and at every test gamma and shift, for the scores
    weight_ema: Annotated[float, Rule(lambda share: 0 <= share < 1, "in [0, 1)")] = 0.0
    # ^ fraction of the evaluated weights kept from the step before; 0: none
    early_stop: bool = True  # end an arm that its reports show to go wrong (docs/forms.md)
    shifts: tuple[Shift, ...] = ()
    # ^ disturbances beside Gaussian noise that the final result is scored under, never selected by
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"  # bfloat16: autocast, as usual
    device: Literal["cpu", "cuda"] = "cpu"
    threads: Positive[int] = 1  # CPU threads; part of the numbers
    constraint: ConstraintConfig | None = None

    def __post_init__(self) -> None:
        """Fill in the task's test gammas, then check."""
        if self.test_gammas in ((), []) and isinstance(self.task, str):
            object.__setattr__(self, "test_gammas", facts_of(self.task).test_gammas)
        super().__post_init__()

    def _check(self) -> None:
        self._name_gammas()
        rising = all(a < b for a, b in zip(self.test_gammas, self.test_gammas[1:], strict=False))
        self.require(
            len(self.test_gammas) >= 2 and self.test_gammas[0] >= 0 and rising,
            "test_gammas",
            "at least two rising numbers from 0 up",
        )
        self.require(
            all(
                f"{g:.2f}" != f"{self.train_gamma:.2f}" or g == self.train_gamma
                for g in self.test_gammas
            ),
            "train_gamma",
            "a test gamma, or another one to two decimals",
            "scores are kept by these.",
        )
        low, high = self.noise_in_training
        self.require(
            low <= high,
            "train_gamma_high",
            f"at least train_gamma_low ({low:g})",
            "None is train_gamma.",
        )
        self.require(
            all(round(g, 2) == g for g in self.test_gammas),
            "test_gammas",
            "numbers of at most two decimals",
            "scores are kept under these names.",
        )
        self.require(
            self.warmup_fraction >= 0 and self.warmup_fraction + self.decay_fraction <= 1 + 1e-9,
            "warmup_fraction",
            f"at least 0, and with decay_fraction {self.decay_fraction:g} at most 1",
        )
        self.require(
            self.accumulate > 0 and self.batch_size % self.accumulate == 0,
            "accumulate",
            f"a positive divisor of batch_size {self.batch_size}",
        )
        self.require(len(set(self.shifts)) == len(self.shifts), "shifts", "named once each")
        self._check_task()
        if self.constraint is not None:
            self._check_constrained(self.constraint)

    def _name_gammas(self) -> None:
        """Replace gammas that a rounding moved by the two decimals that they stand for."""
        for name in ("train_gamma", "train_gamma_low", "train_gamma_high"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, named_gamma(value))
        object.__setattr__(self, "test_gammas", tuple(map(named_gamma, self.test_gammas)))

    def _check_constrained(self, constraint: ConstraintConfig) -> None:
        constraint.require(
            self.facts.answers or constraint.inner_tokens == 1.0,
            "inner_tokens",
            f"left at 1.0 in {self.task}",
            "its samples have one prediction each, of which no part can be sampled.",
        )
        constraint.require(
            self.facts.answers or constraint.inner_layers is None,
            "inner_layers",
            f"left at None in {self.task}",
            "its layers are read at next to no cost.",
        )
        inner = self.model.layers - constraint.first_layer
        constraint.require(
            self.model.layers == 0 or (constraint.inner_layers or 1) <= max(inner, 1),
            "inner_layers",
            f"None or at most {inner}, the layers before the last that a constraint bounds",
        )
        constraint.require(
            self.facts.has_identity or constraint.reference_unit != "identity",
            "reference_unit",
            f"'constant' or 'absolute' in {self.task}",
            "the unchanged input is no prediction there.",
        )
        constraint.require(
            constraint.warmup_steps <= self.steps,
            "warmup_steps",
            f"at most steps ({self.steps})",
            "the warm-up is part of the budget.",
        )
        left = self.steps - constraint.warmup_steps
        # epochs are checked in weighting.py; a control has no dual step
        unasked = constraint.dual_every_unit == "epoch" or constraint.is_control
        constraint.require(
            unasked or left == 0 or constraint.dual_every <= left,
            "dual_every",
            f"at most steps less warmup_steps ({left})",
            "the run would end before its first dual step.",
        )
        self.require(
            self.accumulate == 1 or not constraint.weights_follow_losses,
            "accumulate",
            f"1 with form {constraint.form!r}, dual_optimizer {constraint.dual_optimizer!r} and "
            f"weights_by {constraint.weights_by!r}",
            "its layer weights need the losses of the full batch at once.",
        )
        if self.model.layers == 0:
            return  # known once the checkpoint is read
        constraint.require(
            len(constraint.replayed_weights) in (0, self.model.layers + 1),
            "replayed_weights",
            f"{self.model.layers + 1} weights, of layers 0..{self.model.layers}",
        )
        require(
            self.model.layers >= 2 or constraint.reference != "bound_first",
            "model.layers",
            self.model.layers,
            "at least 2 in a constrained run with reference 'bound_first'",
            "one layer has no layer before it to descend from. With 'virtual_layer0' or "
            "'bound_zero' it descends from f0.",
        )
        constraint.require(
            (1 - constraint.alpha) ** self.model.layers > 1e-12,
            "alpha",
            f"small enough that (1 - alpha)^{self.model.layers} exceeds 1e-12",
            "no network can lose that much.",
        )

    def _check_task(self) -> None:
        """Raise InvalidValue where a field is set that the task never reads, or one is missing."""
        task, facts, model = self.task, self.facts, self.model
        if model.name not in facts.models:
            own = model_spec(model.name).task
            self.require(task == own, "task", f"{own!r} for model {model.name}")
        require(
            model.checkpoint is not None or not facts.needs_tokenizer,
            "model.checkpoint",
            model.checkpoint,
            f"given for model {model.name}",
            "its tokenizer makes the tokens; a plug-in has 'checkpoint' among its options.",
        )
        for f in dataclasses.fields(self.data):
            is_others = f.name in VIDEO_DATA + INSTRUCTION_DATA and f.name not in facts.data
            value = getattr(self.data, f.name)
            require(
                not is_others or value == f.default,
                f"data.{f.name}",
                value,
                f"left at {f.default!r} in {task}",
                f"it reads {', '.join(facts.data) or 'none of these fields'}.",
            )
        for shift in self.shifts:
            self.require(
                shift in facts.shifts,
                "shifts",
                f"without {shift!r} in {task}",
                f"it takes {', '.join(facts.shifts)}.",
            )
        self.require(
            "frame_drop" not in self.shifts or self.data.frames > 1,
            "shifts",
            "without 'frame_drop' where a sample is one frame",
            "a frame that is lost cannot be restored from itself.",
        )
        self.require(
            self.readout_lr is None or (facts.reads_texts and not facts.answers),
            "readout_lr",
            f"left at None in {task}",
            "its models have no readout.",
        )

    def unconstrained(self) -> ArmConfig:
        """The unconstrained arm of this run's pair."""
        return dataclasses.replace(self, constraint=None)

    @property
    def arm(self) -> Literal["constrained", "unconstrained"]:
        """The arm of its pair that this run is."""
        return "unconstrained" if self.constraint is None else "constrained"

    @property
    def largest_gradient(self) -> float:
        """The norm at which gradients are clipped; infinite where they are not."""
        return math.inf if self.grad_clip is None else self.grad_clip

    @property
    def facts(self) -> TaskFacts:
        """The facts of this run's task: its metric, its words, its fields."""
        return facts_of(self.task)

    @property
    def noise_in_training(self) -> tuple[float, float]:
        """The least and the largest gamma of a training sample; one value unless they are mixed."""
        low, high = self.train_gamma_low, self.train_gamma_high
        return (
            self.train_gamma if low is None else low,
            self.train_gamma if high is None else high,
        )

    @property
    def matched_capacity(self) -> bool:
        """True when the two arms of this run's pair have the same parameters to train.

        False for DUST's ``paper`` variant, say: L dictionaries in the constrained arm, one in the
        other, so that their difference is not that of constraining.
        """
        return self.model.variant not in self.model.spec.unmatched

    def with_fields(self, values: Mapping[str, Json]) -> ArmConfig:
        """Replace fields by dotted name: ``{"constraint.alpha": 0.2, "model.layers": 5}``.

        A field of a section that is None (``constraint.alpha`` of an unconstrained run) starts from
        that section's defaults for the task.

        >>> ArmConfig().with_fields({"model.layers": 5}).model.layers
        5
        """
        changed: dict[str, Json] = {}  # other sections stay as they are: they were checked before
        of_model: dict[str, Json] = {}
        task = str(values.get("task", self.task))
        for name, value in values.items():
            section, _, leaf = field_of(name).partition(".")
            if section == "model":
                of_model[leaf] = value
            elif leaf:
                before = changed.get(section) or getattr(self, section) or default_constraint(task)
                fields = changed[section] = before if isinstance(before, dict) else before.to_json()
                fields[leaf] = value
            else:
                changed[name] = value
        if task != self.task and self.test_gammas == self.facts.test_gammas:
            changed["test_gammas"] = values.get("test_gammas", ())
        if of_model:
            changed["model"] = self.model.with_values(of_model)
        return replace(self, **changed)

    def value_of(self, name: str) -> Json:
        """The field with this dotted name; None inside a section that is None."""
        value: Json = self
        for part in name.split("."):
            is_own = isinstance(value, Mapping)  # options of its own; another model has others
            value = value.get(part) if is_own else value and getattr(value, part)
        return value

    def signature(self, version: int | None = None) -> str:
        """16 hex digits: the hash of the fields that are not at their defaults.

        So a field that is new leaves the arms that are stored as they are; a default that changes
        does not, and tests/golden/defaults.json has them all.
        ``data.folder`` is a place and is left out: the pixels' fingerprint stands for it. So does
        that of a checkpoint's files for ``model.checkpoint``.

        Args:
            version: the training version; None: this one. With another one it is the name that the
                arm had then, as long as no default has changed since.
        """
        version = TRAINING_VERSION if version is None else version
        content = with_names(self.changed(), FIRST_NAMES)
        if content.get("data", {}).pop("folder", None) and not content["data"]:
            del content["data"]
        if self.model.checkpoint_fingerprint:
            content["model"].pop("checkpoint")
        if version > 1 and (names := self.mended()):
            content["mended"] = names
        text = json.dumps({"training_version": version, "config": content}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def mended(self) -> list[str]:
        """Names in ``MENDED`` of the changes that concern this arm."""
        names = []
        lowest = min(gamma for gamma in self.test_gammas if gamma > 0)
        if self.train_gamma == 0 and self.facts.has_identity and lowest != IDENTITY_GAMMA:
            names.append("identity_gamma")
        if self.data.split_by_seed and self.data.max_items is not None:
            names.append("split_of_all_items")
        if self.device == "cuda" and not self.facts.reads_texts:
            names.append("stack_on_gpu")
        if self.is_folded:
            names.append("folded_ut")
        return names

    @property
    def is_folded(self) -> bool:
        """True if the network's layers are one operation (models/folded_ut.py)."""
        is_small = self.data.patch_size <= FOLDED_PATCH
        folds = self.model.variant in self.model.spec.folded
        return folds and is_small and self.device == "cpu" and self.dtype != "bfloat16"


@functools.cache
def field_names() -> tuple[str, ...]:
    """Every settable field of a run, by dotted name."""
    plain = ArmConfig(constraint=ConstraintConfig()).to_json()
    return tuple(
        f"{name}.{leaf}" if leaf else name
        for name, value in plain.items()
        for leaf in (value if isinstance(value, dict) else [""])
    )


def field_of(name: str, others: tuple[str, ...] = ()) -> str:
    """Return ``name`` when it is a settable field of a run, or one of ``others``.

    Raises:
        UnknownName: it is none.
        RemovedOption: it was one.
    """
    known = (*others, *field_names())
    if name not in known and not re.fullmatch(r"model\.own\.\w+", name):  # ModelConfig checks it
        if RENAMED.get(name) in known:
            raise RemovedOption(f"unknown field {name!r}: it is called {RENAMED[name]} now.")
        if name.removeprefix("constraint.") in REMOVED:
            raise RemovedOption(f"unknown field {name!r}: the option was removed.")
        raise UnknownName.among("field", name, known)
    return name
