"""Configuration of the descent constraints: what layers owe, how multipliers move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from trainables.config.fields import NotNegative, Positive, Rule, Section, at_least
from trainables.errors import RemovedOption, require
from trainables.plain import Json
from trainables.registry.find_plugins import facts_of

# A layer delivers at least 90 % of the descent asked of it (docs/decisions/0001). Where a space
# says otherwise, verdicts follow it, and early signs the larger one (docs/decisions/0015).
TOLERANCE = 0.10

# Fields that one setter of the layer weights alone reads.
SETTERS_KNOBS = {
    "supervision": "deep_supervision",
    "supervision_decay": "deep_supervision",
    "penalty": "penalty",
    "replayed_weights": "replayed",
}
# Fields that one dual optimiser alone reads.
_DUAL_KNOBS = {
    "dual_kp": "nupi",
    "dual_penalty": "augmented",
}
# Fields that were removed, with the value at which they did nothing: stored files may have them.
REMOVED: Mapping[str, Json] = {
    "violation_ema": 0.0,
    "alpha_ramp_steps": 0,
    "dual_penalty_growth": 1.0,
    "dual_noise": None,
}


@dataclass(frozen=True, kw_only=True)
class ConstraintConfig(Section):
    """The descent constraints of one arm and how its multipliers move (docs/method.md)."""

    alpha: Annotated[
        float,
        Rule(lambda a: 0 < a < 1, "in (0, 1)", "no layer can remove more than all of its loss."),
    ] = 0.2  # each layer must cut the expected loss by this fraction, eq. (4)
    form: Literal["difference", "ratio"] = "difference"
    # ^ f_l - (1 - alpha) f_{l-1} <= 0, or f_l / f_{l-1} - (1 - alpha) <= 0: not the Lagrangian
    reference: Literal["bound_first", "virtual_layer0", "bound_zero"] = "bound_first"
    # ^ f_1 <= f0; or f_1 <= (1 - alpha) f0; or f_0 <= f0 and f_1 <= (1 - alpha) f_0
    reference_loss: Positive[float] = 1.0  # f0, in units of reference_unit
    reference_unit: Literal["constant", "identity", "absolute"] = "identity"
    # ^ constant: the best constant prediction's loss; identity: the unchanged input's loss at
    #   train_gamma; absolute: the task's own loss (the paper's kind)
    scale: Literal["schedule", "none"] = "schedule"  # constraints over s_l, or as in the paper
    grad_through_previous: bool = True  # True: the Lagrangian; False: `detached`, no duality theory
    dual_optimizer: Literal["sgd", "adam", "adamw", "bare_decay", "nupi", "augmented"] = "sgd"
    # ^ projected SGD; the paper's Adam; others by their equations in docs/forms.md
    dual_signal: Literal["violation", "relative"] = "relative"
    # ^ what the dual step follows: g itself, or g over the loss allowed right now
    signal_clip: Positive[float | None] = 1.0
    # ^ the dual signal is clipped to +- this; None: as in the paper
    dual_lr: Annotated[float, at_least(0, "0 holds the multipliers at zero.")] = 3e-4
    # ^ in nupi and augmented 0 leaves the part that dual_kp and dual_penalty set
    dual_kp: NotNegative[float] = 0.01  # nupi: kappa_p, multiplier per unit of the signal's change
    inner_tokens: Annotated[float, Rule(lambda share: 0 < share <= 1, "in (0, 1]")] = 1.0
    # ^ decoders: of which fraction of an answer's tokens inner layers' losses are in training. They
    #   and the gradient are unbiased; a relative signal, their quotient, is so only nearly. The
    #   last layer's and all that is judged are exact
    inner_layers: Positive[int | None] = None
    # ^ decoders: how many inner layers' losses a training step takes, drawn anew, as unbiased
    #   estimates of all; None: every layer's
    dual_penalty: NotNegative[float] = 0.01  # augmented: p, multiplier per unit of the signal
    resilience: Annotated[float, at_least(0, "0 means hard constraints.")] = 0.0
    # ^ c = 1/rho, decay of lambda: coupled, eq. (38), but for adamw and bare_decay
    resilience_form: Literal["decay", "slack", "slack_restart"] = "decay"
    # ^ eq. (38); or a slack variable of its own, eq. (36); or that, zeroed after every epoch
    dual_every: Positive[int] = 1  # the dual step is taken once in so many ...
    dual_every_unit: Literal["step", "epoch"] = "step"  # ... on the mean violation since the last
    warmup_steps: NotNegative[int] = 0  # plain steps before the constraints act, inside the budget
    warmup_epochs: NotNegative[int] = 0  # and as many passes over the training data
    weights_by: Literal["multipliers", "deep_supervision", "penalty", "replayed", "last_layer"] = (
        "multipliers"
    )
    # ^ what sets the layer weights. All but multipliers are controls: arms that the constraint
    #   judges and does not train, whatever is said of multipliers above (docs/forms.md)
    supervision: NotNegative[float] = (
        1.0  # deep_supervision: omega of w_l = omega q^(L - l), w_L = 1
    )
    supervision_decay: Annotated[float, Rule(lambda q: 0 < q <= 1, "in (0, 1]")] = 1.0  # its q
    penalty: NotNegative[float] = 1.0  # mu of the objective f_L + mu sum_l max(g_l, 0)^2
    replayed_weights: tuple[float, ...] = ()  # w of layers 0..L at every step

    def _check(self) -> None:
        is_decay, is_sgd = self.resilience_form == "decay", self.dual_optimizer == "sgd"
        self.require(
            is_decay or self.dual_optimizer in ("sgd", "adam"),
            "dual_optimizer",
            f"'sgd' or 'adam' with resilience_form {self.resilience_form!r}",
            "the others are defined with decay alone: set resilience_form='decay'.",
        )
        decays_by_rate = is_decay and self.dual_optimizer not in ("adam", "bare_decay")
        require(
            not decays_by_rate or self.dual_lr * self.resilience < 1,
            "dual_lr x resilience",
            self.dual_lr * self.resilience,
            "below 1",
            "one dual step would decay a multiplier past zero.",
        )
        self.require(
            self.dual_optimizer != "bare_decay" or self.resilience < 1,
            "resilience",
            "below 1 with dual_optimizer 'bare_decay'",
            "it is the fraction of a multiplier that one dual step takes off.",
        )
        if self.inner_layers is not None:
            self._check_drawn_layers()
        self.require(
            self.resilience_form == "decay" or self.resilience > 0,
            "resilience",
            f"positive with resilience_form {self.resilience_form!r}",
            "a slack that costs infinitely much is no slack.",
        )
        self.require(
            is_decay or not is_sgd or self.dual_lr < min(1.0, self.resilience),
            "dual_lr",
            f"below 1 and below resilience ({self.resilience}) "
            f"with resilience_form {self.resilience_form!r}",
            "the steps of slack and multiplier would overshoot each other and diverge.",
        )
        for choice, knobs in (("weights_by", SETTERS_KNOBS), ("dual_optimizer", _DUAL_KNOBS)):
            chosen = getattr(self, choice)
            for name, reader in knobs.items():
                default = type(self).__dataclass_fields__[name].default
                self.require(
                    chosen == reader or getattr(self, name) == default,
                    name,
                    f"left at {default!r} with {choice} {chosen!r}",
                    f"only {reader!r} reads it.",
                )
        self.require(
            self.weights_by != "replayed" or bool(self.replayed_weights),
            "replayed_weights",
            "a weight for each of the layers 0..L with weights_by 'replayed'",
        )

    def _check_drawn_layers(self) -> None:
        self.require(
            self.form == "difference" and self.dual_signal == "violation",
            "inner_layers",
            "None but with form 'difference' and dual_signal 'violation'",
            "an estimated loss may be 0 or less, and nothing can be divided by it.",
        )
        self.require(
            self.weights_by != "penalty" and self.dual_optimizer != "augmented",
            "inner_layers",
            "None with weights_by 'penalty' and with dual_optimizer 'augmented'",
            "their weights follow the drawn losses, and the gradient would be biased.",
        )
        self.require(
            self.reference == "bound_zero" or not any(self.replayed_weights[:1]),
            "inner_layers",
            "None where replayed_weights has a weight of layer 0",
            "layer 0 is not drawn; with reference 'bound_zero' it is.",
        )

    @classmethod
    def from_json(cls, values: Mapping[str, Json]) -> ConstraintConfig:
        """The section that ``to_json`` wrote, now or when it had more fields."""
        for name in REMOVED.keys() & values.keys():
            idle, got = REMOVED[name], values[name]
            if got != idle:
                raise RemovedOption(f"{name} must be {idle}, got {got!r}: the option was removed.")
        return super().from_json({n: v for n, v in values.items() if n not in REMOVED})

    @property
    def first_layer(self) -> int:
        """The first layer that a constraint bounds."""
        return 0 if self.reference == "bound_zero" else 1

    @property
    def draws_losses(self) -> bool:
        """True when training steps take inner layers' losses from draws of tokens or of layers."""
        return self.inner_tokens < 1 or self.inner_layers is not None

    @property
    def weights_follow_losses(self) -> bool:
        """True when the layer weights of a step depend on the losses of its own batch."""
        by_losses = self.form == "ratio" or self.dual_optimizer == "augmented"
        return {"multipliers": by_losses, "penalty": True}.get(self.weights_by, False)

    @property
    def is_control(self) -> bool:
        """True when something else than multipliers sets the weights: it demands no descent."""
        return self.weights_by != "multipliers"

    @property
    def is_adam(self) -> bool:
        """True when dual steps know no size of the signal: Adam, with either decay."""
        return self.dual_optimizer in ("adam", "adamw")


def default_constraint(task: str) -> ConstraintConfig:
    """The constraint of a run that does not specify one.

    In text f0 is the constant prediction's loss, of a virtual layer 0: the input is no prediction.
    """
    if facts_of(task).has_identity:
        return ConstraintConfig()
    return ConstraintConfig(reference="virtual_layer0", reference_unit="constant")
