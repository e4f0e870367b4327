"""The tutorial space: UT on the built-in photographs, Lagrangian and detached."""

from search_spaces.catalog import setting
from search_spaces.effects.descent import half_of
from search_spaces.space import LogDecay, LogUniform, SearchSpace, Uniform
from trainables.config import ArmConfig, ConstraintConfig, DataConfig

SPACE = SearchSpace(
    name="quickstart",
    summary="UT denoises the built-in camera pans, Lagrangian and detached, on a laptop",
    base=ArmConfig(
        data=DataConfig(name="photographs", frame_size=96, patch_size=8),
        steps=1000,
        report_every=250,
        eval_windows=8,
        constraint=ConstraintConfig(alpha=0.15, dual_lr=3e-4, resilience=1.1),
    ),
    # Plain training's layers raise the loss before they lower it. A winner asks for half of the
    # first proposal's descent at least: weaker ones are nearly plain training, and would win.
    settings=tuple(
        setting("photographs", "ut", 5, 0.15, detached=form, least_descent=half_of(0.15, 4))
        for form in (False, True)
    ),
    ranges={
        "constraint.alpha": Uniform(0.076, 0.25),  # fraction of its loss each layer must remove
        "constraint.dual_lr": LogUniform(5e-5, 3e-3),  # of the clipped relative signal
        "constraint.resilience": LogDecay(0.1, 10.0),  # by what it takes off a multiplier
    },
    n_proposals=4,
    search_seeds=(0,),
)
