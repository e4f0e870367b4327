"""The tutorial: UT on the built-in photographs, two depths, a few minutes on a laptop."""

from search_spaces.catalog import half_of, setting
from search_spaces.space import LogDecay, LogUniform, SearchSpace, Uniform
from trainables.config import ConstraintConfig, DataConfig, RunConfig

SPACE = SearchSpace(
    name="quickstart",
    summary="UT denoises the built-in camera pans, 4 and 5 layers, on a laptop",
    base=RunConfig(
        data=DataConfig(name="photographs", frame_size=96, patch_size=8),
        steps=1000,
        report_every=250,
        eval_windows=8,
        constraint=ConstraintConfig(alpha=0.15, dual_lr=3e-4),
    ),
    # A winner asks for half of the first proposal's descent at least: weaker constraints are nearly
    # plain training, and would win for it.
    settings=tuple(
        setting("photographs", "ut", layers, 0.15, least_descent=half_of(0.15, layers - 1))
        for layers in (4, 5)
    ),
    ranges={
        "constraint.alpha": Uniform(0.05, 0.25),  # fraction of its loss each layer must remove
        "constraint.dual_lr": LogUniform(5e-5, 3e-3),  # of the clipped relative signal
        "constraint.resilience": LogDecay(0.1, 10.0),  # by what it takes off a multiplier
    },
    n_proposals=4,
    search_seeds=(0,),
)
