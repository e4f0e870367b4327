"""UT on UCSD Ped2, Lagrangian against detached: are the constraints met, and does it pay?"""

from dataclasses import replace

from search_spaces.catalog import setting
from search_spaces.space import LogUniform, SearchSpace, Uniform
from trainables.config import ConstraintConfig, DataConfig, RunConfig

SPACE = SearchSpace(
    name="ped2_ut",
    summary="UT on UCSD Ped2, 3 and 5 layers, Lagrangian and detached",
    base=RunConfig(
        data=DataConfig(name="ucsd_ped2"),
        steps=1000,
        constraint=ConstraintConfig(alpha=0.1, reference_loss=1.5, dual_lr=0.02, resilience=0.005),
    ),
    # The two forms of a depth share their unconstrained arms.
    settings=tuple(
        setting("ucsd_ped2", "ut", layers, 0.15, detached=detached)
        for layers in (3, 5)
        for detached in (False, True)
    ),
    ranges={
        "constraint.alpha": Uniform(0.02, 0.35),  # fraction of its loss each layer must remove
        "constraint.dual_lr": LogUniform(3e-3, 1e-1),  # of the clipped relative signal
        "constraint.resilience": LogUniform(1e-3, 1e-1),  # slack a layer is granted per multiplier
    },
    n_proposals=8,
    search_seeds=(0, 1),
)

# To where more steps no longer change the unconstrained arm much (science.md, longer runs).
FULL = replace(
    SPACE.with_base({"steps": 4000, "report_every": 400, "eval_windows": 96}), n_proposals=16
)
