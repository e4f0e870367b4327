"""UT on UCSD Ped2 over the paper's depths and training noise (arXiv 2601.17257, Table 3)."""

from dataclasses import replace

from search_spaces.catalog import setting
from search_spaces.space import LogUniform, SearchSpace, Uniform
from trainables.config import ConstraintConfig, DataConfig, RunConfig

SPACE = SearchSpace(
    name="video_denoising_ut",
    summary="UT on UCSD Ped2: 3, 5, 7 layers x 5 noise levels, the paper's grid",
    base=RunConfig(
        data=DataConfig(name="ucsd_ped2"),
        steps=1000,
        constraint=ConstraintConfig(alpha=0.2, dual_lr=3e-4, resilience=0.05),
    ),
    settings=tuple(
        setting("ucsd_ped2", "ut", layers, gamma, alpha=alpha)
        for layers, alpha in ((3, 0.45), (5, 0.2), (7, 0.1))
        for gamma in (0.0, 0.09, 0.11, 0.13, 0.15)
    ),
    ranges={
        "constraint.alpha": Uniform(0.05, 0.55),  # fraction of its loss each layer must remove
        "constraint.dual_lr": LogUniform(5e-5, 3e-3),  # of the clipped relative signal
        "constraint.resilience": LogUniform(1e-2, 1.0),  # slack a layer is granted per multiplier
    },
    n_proposals=8,
    search_seeds=(0, 1),
)

# Trained to where more steps no longer change the unconstrained arm much.
FULL = replace(
    SPACE.with_base({"steps": 4000, "report_every": 400, "eval_windows": 96}), n_proposals=16
)
