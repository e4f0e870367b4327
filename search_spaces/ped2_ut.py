"""UT on UCSD Ped2, Lagrangian against detached: constraints met, and does it pay?"""

from search_spaces.catalog import half_of, highest_alpha, longer, setting
from search_spaces.space import LogDecay, LogUniform, SearchSpace, Uniform
from trainables.config import ArmConfig, ConstraintConfig, DataConfig

# What UT attains of the unchanged input's loss, f0, with 3 and with 5 layers (docs/ped2.md).
REACHED = 0.134

SPACE = SearchSpace(
    name="ped2_ut",
    summary="UT on UCSD Ped2, 3 and 5 layers, Lagrangian and detached",
    base=ArmConfig(
        data=DataConfig(name="ucsd_ped2"),
        steps=900,
        report_every=300,
        eval_windows=12,
        constraint=ConstraintConfig(alpha=0.2, dual_lr=3e-4),
    ),
    # The two forms of a depth share their unconstrained arms. Three layers meet an alpha of about
    # 0.4 unasked: below it there is nothing to constrain.
    settings=tuple(
        setting(
            "ucsd_ped2",
            "ut",
            layers,
            0.15,
            detached=detached,
            alpha=alpha,
            least_descent=least,
            ranges={"constraint.alpha": Uniform(low, highest_alpha(REACHED, layers - 1))},
        )
        # What a winner must ask for: of three layers what they do not do unasked (1 - 0.6^2), of
        # five half of the first proposal's descent, in logarithms.
        for layers, low, alpha, least in ((3, 0.4, 0.45, 0.64), (5, 0.05, 0.2, half_of(0.2, 4)))
        for detached in (False, True)
    ),
    ranges={
        "constraint.alpha": Uniform(0.05, 0.55),  # fraction of its loss each layer must remove
        "constraint.dual_lr": LogUniform(5e-5, 3e-3),  # of the clipped relative signal
        "constraint.resilience": LogDecay(0.1, 10.0),  # by what it takes off a multiplier
    },
    n_proposals=8,
    search_seeds=(0, 1),
)

# To where more steps no longer change the unconstrained arm much.
FULL = longer(SPACE, 4000, eval_windows=96)
