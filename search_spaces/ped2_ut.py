"""UT on UCSD Ped2, Lagrangian against detached: constraints met, and does it pay?"""

from search_spaces.catalog import longer, setting
from search_spaces.effects.descent import half_of, highest_alpha, least_alpha
from search_spaces.ranges import LogReach
from search_spaces.space import LogDecay, SearchSpace, Uniform
from trainables.config import ArmConfig, ConstraintConfig, DataConfig

# What UT attained of the unchanged input's loss, f0, with 3 and with 5 layers, in early runs.
REACHED = 0.134
# What a winner asks for, and where ranges of alpha begin: of three layers what they do not do
# unasked (1 - 0.6^2), of five half of what an alpha of 0.2 asks for, in logarithms.
LEAST = {3: 0.64, 5: half_of(0.2, 4)}
# How far a multiplier comes under a signal of 1. A weight is a multiplier over its layer's target,
# so that 0.01 weighs about as much as the objective: in early runs the Lagrangian overshot beyond
# 0.2, and most pairs were feasible within. Detached, no layer is paid to rise.
FIRST = {"constraint.dual_lr": 1.2e-4, "constraint.resilience": 10.0}  # a reach of 0.1, decay 1
REACH, DETACHED_REACH = LogReach(0.02, 0.2), LogReach(0.04, 2.4)

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
    # The two forms of a depth share their unconstrained arms.
    settings=tuple(
        setting(
            "ucsd_ped2",
            "ut",
            layers,
            0.15,
            detached=detached,
            alpha=alpha,
            least_descent=LEAST[layers],
            fields={} if detached else FIRST,
            ranges={
                "constraint.alpha": Uniform(least_alpha(LEAST[layers], layers - 1), high),
                "constraint.dual_lr": DETACHED_REACH if detached else REACH,
            },
        )
        for layers, detached, alpha, high in (
            (3, False, 0.45, highest_alpha(REACHED, 2)),
            (3, True, 0.45, highest_alpha(REACHED, 2)),
            (5, False, 0.16, 0.22),
            (5, True, 0.2, highest_alpha(REACHED, 4)),
        )
    ),
    ranges={
        "constraint.alpha": Uniform(0.05, 0.55),  # fraction of its loss each layer must remove
        "constraint.dual_lr": REACH,  # of the clipped relative signal
        "constraint.resilience": LogDecay(0.3, 5.0),  # by what it takes off a multiplier
    },
    n_proposals=8,
    search_seeds=(0, 1),
)

# To where more steps no longer change the unconstrained arm much.
FULL = longer(SPACE, 4000, eval_windows=96)
