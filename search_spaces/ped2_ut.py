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
        steps=900,
        report_every=300,
        eval_windows=12,
        constraint=ConstraintConfig(alpha=0.2, dual_lr=3e-4, resilience=0.05),
    ),
    # The two forms of a depth share their unconstrained arms. Three layers meet an alpha of about
    # 0.4 unasked, five could not reach one much above it.
    settings=tuple(
        setting("ucsd_ped2", "ut", layers, 0.15, detached=detached, alpha=alpha)
        for layers, alpha in ((3, 0.45), (5, 0.2))
        for detached in (False, True)
    ),
    ranges={
        "constraint.alpha": Uniform(0.05, 0.55),  # fraction of its loss each layer must remove
        "constraint.dual_lr": LogUniform(5e-5, 3e-3),  # of the clipped relative signal
        "constraint.resilience": LogUniform(1e-2, 1.0),  # slack a layer is granted per multiplier
    },
    n_proposals=8,
    search_seeds=(0, 1),
)

# To where more steps no longer change the unconstrained arm much.
FULL = replace(
    SPACE.with_base({"steps": 4000, "report_every": 400, "eval_windows": 96}), n_proposals=16
)
