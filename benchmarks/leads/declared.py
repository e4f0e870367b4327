"""Declared leads: their arms, and what each is judged beside.

An arm is the lead's base configuration with some fields replaced. Everything here was fixed before
the first fresh seed was trained: the constraint's and the supervision's strength by ``pilot`` arms
on PILOT_SEEDS and the dev split alone (docs/leads.md says how each was chosen).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from search_spaces import minilm_imdb
from trainables.config.arm import ArmConfig, ConstraintConfig, DataConfig, ModelConfig
from trainables.plain import Json

Fields = Mapping[str, Json]
FIRST_SEED = 1000  # fresh: no search, pilot or audit has used one from here on
PILOT_SEEDS = (0,)
PLAIN: Fields = {"constraint.weights_by": "last_layer"}
DETACHED: Fields = {"constraint.grad_through_previous": False}


@dataclass(frozen=True)
class Lead:
    """One lead: its arms by name, and which of them play which part."""

    asks: str
    base: ArmConfig
    plain: Mapping[str, Fields]  # the frontier: plain training of other lengths, on more noise
    judged: Mapping[str, Fields]  # what the lead says is above it
    controls: Mapping[str, Fields] = field(default_factory=dict)  # other setters of the weights
    pilot: Mapping[str, Fields] = field(default_factory=dict)
    loop: str = ""  # of own_loops.LOOPS, for the judged arms; else the product's
    measure: str = "record"  # of measured.MEASURES
    smallest: float = 0.2  # the smallest effect of interest: grey levels, or accuracy
    first_seed: int = FIRST_SEED
    most_steps: int | None = None  # fewer than declared: to see that it runs

    @property
    def arms(self) -> dict[str, Fields]:
        """All arms of a fresh seed, the frontier first."""
        return {**self.plain, **self.judged, **self.controls}

    def loop_of(self, name: str) -> str:
        """Which of own_loops.LOOPS trains this arm; "" is the product."""
        return self.loop if name in self.judged else ""

    def config(self, fields: Fields, seed: int, split: str = "test") -> ArmConfig:
        """One arm on one seed, scored on a split."""
        config = self.base.with_fields({**fields, "seed": seed, "measured_on": split})
        if self.most_steps is None:
            return config
        steps = min(self.most_steps, config.steps)
        return config.with_fields({"steps": steps, "report_every": steps})


def noise(gamma: float) -> Fields:
    """Plain training on this noise; what counts as seen stays as it is."""
    return {**PLAIN, "train_gamma_low": gamma, "train_gamma_high": gamma}


def mixed(low: float, high: float) -> Fields:
    """Plain training on noise between the two."""
    return {**PLAIN, "train_gamma_low": low, "train_gamma_high": high}


def shorter(base: ArmConfig, part: int) -> Fields:
    """Plain training for a part of the steps, with a schedule of its own."""
    return {**PLAIN, "steps": base.steps // part, "report_every": base.steps // part}


def plain_arms(base: ArmConfig, parts: tuple[int, ...] = (2, 4, 8)) -> dict[str, Fields]:
    """Plain training at 1, 1.5, 2 and 3 times the noise, mixed noise, and shorter."""
    gamma = base.train_gamma
    more = {f"gamma x {k:g}": noise(round(k * gamma, 3)) for k in (1.5, 2.0, 3.0)}
    less = {f"steps / {part}": shorter(base, part) for part in parts}
    return {"plain": PLAIN, **more, "gamma x 1 to 3": mixed(gamma, 3 * gamma), **less}


def supervision(omega: float) -> Fields:
    """Deep supervision with one weight for all inner layers."""
    return {"constraint.weights_by": "deep_supervision", "constraint.supervision": omega}


def alphas(*values: float) -> dict[str, Fields]:
    """Both forms at each alpha."""
    forms: dict[str, Fields] = {"lagrangian": {}, "detached": DETACHED}
    return {
        f"{form} {alpha:g}": {**fields, "constraint.alpha": alpha}
        for alpha in values
        for form, fields in forms.items()
    }


PED2_SMALL = DataConfig(name="ucsd_ped2", frame_size=48, patch_size=8)
TIED = ArmConfig(
    data=PED2_SMALL,
    model=ModelConfig(
        name="dust", layers=5, variant="shared", atoms_per_side=12, start_jitter=0.01
    ),
    train_gamma=0.15,
    test_gammas=(0.05, 0.15, 0.25, 0.35, 0.5, 0.75, 1.0),
    steps=1500,
    batch_size=32,
    report_every=1500,
    eval_windows=24,
    early_stop=False,
    constraint=ConstraintConfig(
        alpha=0.1,
        reference_loss=0.8,
        reference_unit="constant",
        scale="none",
        dual_signal="violation",
        dual_lr=0.125,
        resilience=1e-3,
    ),
)
FRONTIER = plain_arms(TIED)
SUPERVISED = {"deep supervision": supervision(0.01)}
H1 = Lead(
    asks="Does a constrained DUST with one dictionary denoise unseen noise better?",
    base=TIED,
    plain=FRONTIER,
    judged=alphas(0.1),
    controls=SUPERVISED,
    pilot={
        "plain": PLAIN,
        **alphas(0.05, 0.1),
        **{f"deep supervision {omega:g}": supervision(omega) for omega in (0.01, 0.1, 1.0)},
    },
)
MORE: Fields = {"train_gamma_low": 0.45, "train_gamma_high": 0.45}
H1_MORE = replace(
    H1,
    asks="Does it add to what more noise in training gives?",
    plain={**FRONTIER, "gamma x 5": noise(0.75), "gamma x 1 to 5": mixed(0.15, 0.75)},
    judged={f"{name}, gamma x 3": {**fields, **MORE} for name, fields in alphas(0.1).items()},
    pilot={},
)
H2 = replace(
    H1,
    asks="Does it, when it is run at more layers than it was trained with?",
    measure="depth",
    pilot={},
)
WORDS = minilm_imdb.SPACE.base.with_fields(
    {
        "model.name": "text_ut",
        "model.layers": 3,
        "test_gammas": (0.0, 0.4, 0.8, 1.2, 1.6, 2.0),
        "primal_lr": 1e-3,
        "steps": 800,
        "report_every": 800,
        "early_stop": False,
        "constraint.alpha": 0.05,
    }
)
H3 = Lead(
    asks="Does detached UT classify reviews under unseen noise better?",
    base=WORDS,
    plain={n: arm for n, arm in plain_arms(WORDS, (2, 4)).items() if n != "gamma x 1.5"},
    judged={"detached 0.05": {**DETACHED, "constraint.alpha": 0.05}},
    controls={"deep supervision": supervision(0.1)},
    pilot={
        "plain": PLAIN,
        **{f"detached {a:g}": {**DETACHED, "constraint.alpha": a} for a in (0.03, 0.05)},
        **{f"deep supervision {omega:g}": supervision(omega) for omega in (0.1, 1.0)},
    },
    smallest=0.01,
)
H4 = replace(
    H1,
    asks="Do constraints on noise of gamma to 3 gamma help, with the objective at gamma?",
    judged={f"{name}, under the shift": fields for name, fields in alphas(0.1).items()},
    loop="under_shift",
    pilot={},
)
H5 = replace(
    H1,
    asks="Do constraints on every group of clips help the worst clip?",
    judged={f"{name}, per group": fields for name, fields in alphas(0.1).items()},
    loop="per_group",
    measure="worst clip",
    pilot={},
)
PER_LAYER = TIED.with_fields({"model.variant": "per_layer"})
H6 = Lead(
    asks="Does DUST with a dictionary per layer, whose gain was confirmed (docs/confirmed.md)?",
    base=PER_LAYER,
    plain=plain_arms(PER_LAYER, parts=(2, 4))
    | {
        f"steps x {k}": {**PLAIN, "steps": k * PER_LAYER.steps, "report_every": k * PER_LAYER.steps}
        for k in (2, 4)
    },
    judged={
        "lagrangian 0.116": {"constraint.alpha": 0.116},
        "detached 0.2": {**DETACHED, "constraint.alpha": 0.2},
    },
    controls={"deep supervision": supervision(0.005)},
    first_seed=2000,  # the confirmation had those from 1000 on
)
CLIPPED: Fields = {"grad_clip": 1e-3}
H7 = Lead(
    asks="Is that gain more than what normalised gradients give plain training?",
    base=PER_LAYER,
    plain={
        "plain": PLAIN,
        "no clip": {**PLAIN, "grad_clip": None},
        "clip 0.01": {**PLAIN, "grad_clip": 0.01},
        "clip 0.001": {**PLAIN, **CLIPPED},
    },
    judged={
        **H6.judged,
        **{f"{name}, clip 0.001": {**fields, **CLIPPED} for name, fields in H6.judged.items()},
    },
    first_seed=6000,  # a look at those from 2000 on raised the question
)
LEADS: Mapping[str, Lead] = {
    "H1": H1,
    "H1 on more noise": H1_MORE,
    "H2": H2,
    "H3": H3,
    "H4": H4,
    "H5": H5,
    "H6": H6,
    "H7": H7,
}
