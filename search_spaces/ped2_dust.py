"""DUST and UT on UCSD Ped2 with 5 layers, trained long.

The question: what stays of the gains of short runs? f0, alpha and dual_lr are those that early
experiments of this length found to be feasible: constraints without a schedule, projected SGD on
the multipliers (docs/spaces.md). DUST appears with a dictionary per layer in both arms, and once as
in the paper, where the unconstrained arm shares one. That setting's constrained arms train as those
of the first one do, and its search would repeat theirs, so it gets one proposal, whatever the
others get.
"""

from dataclasses import replace

from search_spaces.catalog import setting
from search_spaces.effects.descent import half_of, least_alpha
from search_spaces.space import LogDecay, LogUniform, SearchSpace, Setting, Uniform
from trainables.config import ArmConfig, ConstraintConfig, DataConfig

GAMMA, LAYERS = 0.13, 5
# The dual step of DUST follows g over f_c: 0.1 on g over f0 = 6.5 is 0.125 there.
DUST = {
    "batch_size": 16,
    "constraint.reference_loss": 6.5,
    "constraint.dual_signal": "violation",
    "constraint.dual_lr": 0.125,
}
# That of UT follows the fraction of the allowed loss: its layers are within reach of it.
UT = {
    "batch_size": 32,
    "constraint.reference_loss": 0.2,  # 1.45 times the unchanged input's loss
    "constraint.dual_signal": "relative",
    "constraint.dual_lr": 0.02,
}


def _settings() -> tuple[Setting, ...]:
    def row(model: str, detached: bool, variant: str = "", most: int | None = None) -> Setting:
        fields, alpha = (DUST, 0.25) if model == "dust" else (UT, 0.1)
        least = half_of(alpha, LAYERS - 1)
        return setting(
            "ucsd_ped2", model, LAYERS, GAMMA,
            variant=variant, detached=detached, alpha=alpha, n_proposals=most, fields=fields,
            least_descent=least,
            ranges={"constraint.alpha": Uniform(least_alpha(least, LAYERS - 1), 0.4)},
        )  # fmt: skip

    forms = tuple(row(model, form) for model in ("dust", "ut") for form in (False, True))
    return (*forms, row("dust", False, "paper", 1))


# One proposal a setting, the known one: 24 arms of 5,000 steps, about 35 minutes on 2 cores.
SPACE = SearchSpace(
    name="ped2_dust",
    summary="DUST and UT on UCSD Ped2, 5 layers, 5,000 steps, Lagrangian and detached",
    base=ArmConfig(
        data=DataConfig(name="ucsd_ped2"),
        train_gamma=GAMMA,
        steps=5000,
        report_every=1000,
        eval_windows=12,
        constraint=ConstraintConfig(
            alpha=0.25,
            reference_loss=6.5,
            reference_unit="absolute",
            scale="none",
            dual_lr=0.1,
            resilience=1e-3,
        ),
    ),
    settings=_settings(),
    ranges={
        "constraint.alpha": Uniform(0.03, 0.4),  # fraction of its loss each layer must remove
        "constraint.dual_lr": LogUniform(5e-3, 0.5),  # of the clipped signal
        "constraint.resilience": LogDecay(0.05, 10.0),  # by what it takes off a multiplier
    },
    n_proposals=1,
    search_seeds=(0, 1, 2),
)

# A search, on every window of the dev clips.
FULL = replace(SPACE.with_base({"eval_windows": 96}), n_proposals=12)
