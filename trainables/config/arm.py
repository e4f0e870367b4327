"""Configuration of one arm: a frozen, validated dataclass, and its signature.

A pair is this description twice: ``(config, config.unconstrained())``. Nothing here imports torch,
so search spaces and the command line load in milliseconds.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from trainables.config.constraint import ConstraintConfig as ConstraintConfig
from trainables.config.fields import NotNegative, Positive, Rule, Section, at_least, require
from trainables.config.task_facts import TaskFacts, check_task_fields, facts_of
from trainables.errors import UnknownName
from trainables.plain import Json
from trainables.plugins import ModelPlugin, model_plugin

# Raised by hand whenever the same config would train to other numbers than before. A test fails
# when the golden losses change and this number does not.
TRAINING_VERSION = 1

# Fields that came after the first version, with the value that trains as it did: at that value they
# are left out of the signature, so that what is stored stays valid.
_ADDED: dict[str, Any] = {
    "model.checkpoint": None,
    "model.checkpoint_fingerprint": "",
    "model.atoms_per_side": 24,
    "model.threshold": 0.01,
    "model.pooling": None,
    "data.max_length": 256,
    "data.max_items": None,
    "constraint.form": "difference",
    "constraint.resilience_form": "decay",
    "constraint.dual_every": 1,
    "constraint.dual_every_unit": "step",
    "constraint.violation_ema": 0.0,
    "constraint.alpha_ramp_steps": 0,
    "weight_ema": 0.0,
    "early_stop": True,  # an arm that finishes has the same numbers
    "shifts": [],
    "readout_lr": None,
    "warmup_share": 0.0,
    "weight_decay": 0.0,
    "accumulate": 1,
}


@dataclass(frozen=True, kw_only=True)
class DataConfig(Section):
    """Which data, and how samples are made of them (docs/method.md, The task).

    A task reads its own part of these fields; the others must keep their defaults (task_facts.py).
    """

    name: str = "photographs"  # a data set of trainables/datasets, or a plug-in's
    folder: str | None = None  # where its files lie; a place, not part of the signature
    frame_size: int = 160  # frames are scaled to frame_size x frame_size grey pixels
    patch_size: Positive[int] = 16  # a token is one patch: patch_size squared pixels
    frames: Positive[int] = 10  # T: a sequence is the same patch over T consecutive frames
    stride: Positive[int] = 5  # frames between the starts of two training windows
    dev_share: Annotated[float, Rule(lambda share: 0 < share < 1, "in (0, 1)")] = 0.25
    # ^ of the training clips (text: groups): held out as dev, rounded up
    max_clips: Annotated[int | None, at_least(2)] = None  # the first of each split; None: all
    max_length: Annotated[int, Rule(lambda n: 4 <= n <= 8192, "in 4..8192")] = 256
    # ^ text: tokens of a sample, special ones included; longer ones are cut
    max_items: Annotated[int | None, at_least(2)] = None  # text: samples of a split; None: all
    fingerprint: str = ""  # hash of the pixels or texts; filled in when the data are resolved

    def _check(self) -> None:
        self.require(
            self.frame_size > 0 and self.frame_size % self.patch_size == 0,
            "frame_size",
            f"a positive multiple of patch_size {self.patch_size}",
        )


# The forwards of each model, its default first; models/<name>.py says what they are.
VARIANTS: dict[str, tuple[str, ...]] = {
    "ut": ("distance", "sharp", "literal"),
    "dust": ("per_layer", "shared", "paper"),
    "vit": ("blocks",),
    "encoder": ("blocks",),
    "text_ut": ("literal",),
}
# What a classifier reads of a layer: its first token ([CLS]), or the mean over its tokens.
POOLINGS: dict[str, Literal["cls", "mean"]] = {"encoder": "cls", "text_ut": "mean"}
_OF_CHECKPOINTS = ("vit", "encoder", "text_ut")
_ONLY_OF: dict[str, tuple[str, ...]] = {
    "checkpoint": _OF_CHECKPOINTS,
    "checkpoint_fingerprint": _OF_CHECKPOINTS,
    "pooling": tuple(POOLINGS),
    "atoms_per_side": ("dust",),
    "threshold": ("dust",),
}


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Section):
    """Which network. ``variant`` names a forward of that model; '' is its default."""

    name: str = "ut"  # one of VARIANTS, or a plug-in's (plugins.py)
    layers: int = 3  # L; of a checkpoint: as many as it has (encoder: or 0, then read from there)
    variant: str = ""  # one of VARIANTS[name], or of the plug-in's
    checkpoint: str | None = None  # vit, encoder: a Hugging Face model by name or folder
    # ^ text_ut: the model whose tokenizer and word embeddings it takes
    checkpoint_fingerprint: str = ""  # hash of its files; filled in before a sweep starts
    atoms_per_side: int = 24  # dust: m, a dictionary of m x m cosine atoms
    threshold: float = 0.01  # dust: lambda_1 / c, below which a coefficient is set to zero
    pooling: Literal["cls", "mean"] | None = None  # what a classifier reads; None: POOLINGS[name]

    def __post_init__(self) -> None:
        """Fill in the model's default variant and pooling, then check."""
        known = ", ".join(map(repr, VARIANTS))
        is_name = isinstance(self.name, str)  # a file may give what has no hash
        require(is_name, "name", self.name, f"one of {known}, or the name of a plug-in")
        if self.variant == "":
            object.__setattr__(self, "variant", variants_of(self.name)[0])
        if self.pooling is None:
            object.__setattr__(self, "pooling", POOLINGS.get(self.name))
        super().__post_init__()

    def _check(self) -> None:
        least = 0 if self.name == "encoder" else 1
        require(least <= self.layers <= 64, "layers", self.layers, f"in {least}..64")
        known = variants_of(self.name)
        allowed = f"one of {', '.join(map(repr, known))} for {self.name}"
        require(self.variant in known, "variant", self.variant, allowed)
        for name, owners in _ONLY_OF.items():
            value, default = getattr(self, name), type(self).__dataclass_fields__[name].default
            require(
                self._reads(name) or value == default,
                name,
                value,
                f"left at {default!r} for {self.name}",
                f"only {' and '.join(owners)} {'has' if len(owners) == 1 else 'have'} it.",
            )
        kind = "ViT" if self.name == "vit" else "encoder" if self.plugin is None else "model"
        require(
            not self._reads("checkpoint") or self.checkpoint is not None,
            "checkpoint",
            self.checkpoint,
            f"the name or folder of a Hugging Face {kind} where model.name is {self.name!r}",
        )
        require(1 <= self.atoms_per_side <= 256, "atoms_per_side", self.atoms_per_side, "in 1..256")
        require(self.threshold >= 0, "threshold", self.threshold, "at least 0")

    @property
    def plugin(self) -> ModelPlugin | None:
        """What another package brings under this name; None: the model is built in."""
        return None if self.name in VARIANTS else model_plugin(self.name, VARIANTS)

    def _reads(self, option: str) -> bool:
        """Whether this model has a field that others have not."""
        if self.plugin is None:
            return self.name in _ONLY_OF[option]
        return option.removesuffix("_fingerprint") in self.plugin.options


def variants_of(model: str) -> tuple[str, ...]:
    """The forwards of a model, built in or a plug-in's; its default first.

    Raises:
        UnknownName, Misuse: as ``model_plugin``.
    """
    return VARIANTS[model] if model in VARIANTS else model_plugin(model, VARIANTS).variants


Shift = Literal[
    "blur", "salt_and_pepper", "frame_drop", "brightness", "token_drop", "token_swap", "typos"
]


@dataclass(frozen=True, kw_only=True)
class RunConfig(Section):
    """One arm. ``constraint=None`` is the unconstrained arm: the same run in everything else."""

    task: str = "video_denoising"  # one of TASKS (task_facts.py), or a plug-in's
    # ^ sequences of co-located patches; or whole frames, one by one (vit); or texts with labels
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train_gamma: NotNegative[float] = 0.15
    # ^ noise std over the clean data's (word embeddings') std, in training
    test_gammas: tuple[float, ...] = ()  # what it is scored at; empty: those of the task's facts
    seed: NotNegative[int] = 0  # keys every random draw: weights, batches, noise
    steps: Positive[int] = 1000  # primal steps, warm-up included
    batch_size: Positive[int] = 32  # samples of a primal step
    accumulate: int = 1  # its parts that pass the network one by one: less memory, the same step
    primal_lr: Positive[float] = 1e-3  # Adam
    readout_lr: Positive[float | None] = None
    # ^ text: of the readout, which starts untrained; None: primal_lr
    weight_decay: NotNegative[float] = 0.0  # AdamW's, on matrices, no biases or norms; 0: Adam
    warmup_share: float = 0.0  # both learning rates rise linearly over this first share of steps
    decay_share: Annotated[float, Rule(lambda share: 0 <= share <= 1, "in [0, 1]")] = 0.2
    # ^ and fall linearly to 0 over this last share
    grad_clip: Positive[float] = 1.0  # global norm of the primal gradient
    report_every: Positive[int] = 100  # steps between reports; each is followed by a checkpoint
    eval_windows: Positive[int] = 24
    # ^ at most so many held-out units in reports and the final result: windows of frames; in text,
    #   reviews or premises with all their hypotheses
    eval_draws: Positive[int] = 4  # noise draws per unit for feasibility, averaged before judging
    weight_ema: Annotated[float, Rule(lambda share: 0 <= share < 1, "in [0, 1)")] = 0.0
    # ^ share of the evaluated weights kept from the step before; 0: none
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
        rising = all(a < b for a, b in zip(self.test_gammas, self.test_gammas[1:], strict=False))
        self.require(
            len(self.test_gammas) >= 2 and self.test_gammas[0] >= 0 and rising,
            "test_gammas",
            "at least two rising numbers from 0 up",
        )
        self.require(
            all(round(g, 2) == g for g in self.test_gammas),
            "test_gammas",
            "numbers of at most two decimals",
            "scores are kept under these names.",
        )
        self.require(
            self.warmup_share >= 0 and self.warmup_share + self.decay_share <= 1 + 1e-9,
            "warmup_share",
            f"at least 0, and with decay_share {self.decay_share:g} at most 1",
        )
        self.require(
            self.accumulate > 0 and self.batch_size % self.accumulate == 0,
            "accumulate",
            f"a positive divisor of batch_size {self.batch_size}",
        )
        self.require(len(set(self.shifts)) == len(self.shifts), "shifts", "named once each")
        check_task_fields(self)
        if self.constraint is not None:
            self._check_constrained(self.constraint)

    def _check_constrained(self, constraint: ConstraintConfig) -> None:
        constraint.require(
            constraint.warmup_steps <= self.steps,
            "warmup_steps",
            f"at most steps ({self.steps})",
            "the warm-up is part of the budget.",
        )
        left = self.steps - constraint.warmup_steps
        constraint.require(
            constraint.alpha_ramp_steps <= left,
            "alpha_ramp_steps",
            f"at most steps less warmup_steps ({left})",
            "alpha would never reach its value.",
        )
        by_epoch = constraint.dual_every_unit == "epoch"  # checked in weighting.py
        constraint.require(
            by_epoch or left == 0 or constraint.dual_every <= left,
            "dual_every",
            f"at most steps less warmup_steps ({left})",
            "the run would end before its first dual step.",
        )
        self.require(
            self.accumulate == 1 or constraint.form == "difference",
            "accumulate",
            "1 with form 'ratio'",
            "its layer weights need the losses of the whole batch at once.",
        )
        if self.model.layers == 0:
            return  # known once the checkpoint is read
        require(
            self.model.layers >= 2,
            "model.layers",
            self.model.layers,
            "at least 2 in a constrained run",
            "one layer has no layer before it to descend from.",
        )
        constraint.require(
            (1 - constraint.alpha) ** self.model.layers > 1e-12,
            "alpha",
            f"small enough that (1 - alpha)^{self.model.layers} exceeds 1e-12",
            "no network can lose that much.",
        )

    def unconstrained(self) -> RunConfig:
        """The other arm of this run's pair."""
        return dataclasses.replace(self, constraint=None)

    @property
    def arm(self) -> Literal["constrained", "unconstrained"]:
        """Which arm of its pair this is."""
        return "unconstrained" if self.constraint is None else "constrained"

    @property
    def facts(self) -> TaskFacts:
        """What is known of this run's task: its metric, its words, its fields."""
        return facts_of(self.task)

    @property
    def matched_capacity(self) -> bool:
        """Whether the two arms of this run's pair have the same parameters to train.

        False for DUST's ``paper`` variant alone: L dictionaries in the constrained arm, one in the
        other, so that their difference is not that of constraining.
        """
        return (self.model.name, self.model.variant) != ("dust", "paper")

    def with_fields(self, values: Mapping[str, Json]) -> RunConfig:
        """Replace fields by dotted name: ``{"constraint.alpha": 0.2, "model.layers": 5}``.

        A field of a section that is None (``constraint.alpha`` of an unconstrained run) starts from
        that section's defaults for the task.

        >>> RunConfig().with_fields({"model.layers": 5}).model.layers
        5
        """
        plain = self.to_json()
        task = str(values.get("task", self.task))
        for name, value in values.items():
            field_of(name)
            section, _, leaf = name.rpartition(".")
            target = plain
            if section:
                if plain[section] is None:
                    plain[section] = default_constraint(task).to_json()
                target = plain[section]
            target[leaf] = value
        if task != self.task and self.test_gammas == self.facts.test_gammas:
            plain["test_gammas"] = values.get("test_gammas", ())
        if plain["model"]["name"] != self.model.name and "model.variant" not in values:
            plain["model"]["variant"] = ""  # another model has other ones
            if "model.pooling" not in values:
                plain["model"]["pooling"] = None
        return RunConfig.from_json(plain)

    def value_of(self, name: str) -> Json:
        """The field with this dotted name; None inside a section that is None."""
        value: Json = self
        for part in name.split("."):
            value = None if value is None else getattr(value, part)
        return value

    def signature(self) -> str:
        """16 hex digits: the hash of what a user can change about this arm's numbers.

        ``data.folder`` is a place and is left out: the pixels' fingerprint stands for it. So does
        that of a checkpoint's files for ``model.checkpoint``.
        """
        content = self.to_json()
        del content["data"]["folder"]
        if self.model.checkpoint_fingerprint:
            content["model"]["checkpoint"] = None
        for name, as_before in _ADDED.items():
            *sections, leaf = name.split(".")
            holder = content[sections[0]] if sections else content
            if holder is not None and holder[leaf] == as_before:
                del holder[leaf]
        text = json.dumps({"training_version": TRAINING_VERSION, "config": content}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def default_constraint(task: str) -> ConstraintConfig:
    """The constraint of a run for which nothing of it is said.

    In text f0 is the constant prediction's loss, of a virtual layer 0: the input is no prediction.
    """
    if facts_of(task).has_identity:
        return ConstraintConfig()
    return ConstraintConfig(reference="virtual_layer0", reference_unit="constant")


_SECTIONS: dict[str, type[Section]] = {
    "data": DataConfig,
    "model": ModelConfig,
    "constraint": ConstraintConfig,
}


def field_names() -> tuple[str, ...]:
    """Every settable field of a run, by dotted name."""
    names: list[str] = []
    for f in dataclasses.fields(RunConfig):
        section = _SECTIONS.get(f.name)
        if section is None:
            names.append(f.name)
        else:
            names.extend(f"{f.name}.{g.name}" for g in dataclasses.fields(section))  # type: ignore[arg-type]
    return tuple(names)


def field_of(name: str) -> str:
    """Return ``name`` when it is a settable field of a run, else raise UnknownName."""
    if name not in field_names():
        raise UnknownName.of("field", name, field_names())
    return name
