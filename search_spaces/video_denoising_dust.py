"""DUST on three video data sets, the paper's depths and training noise (Table 3).

Source: arXiv 2601.17257. Both arms have a dictionary per layer; ``--set model.variant=paper``
shares one in the unconstrained arm, as the paper does, and every table then says that the capacity
is not matched.
"""

from search_spaces.catalog import longer, video_settings
from search_spaces.effects.descent import half_of, least_alpha
from search_spaces.space import LogDecay, LogUniform, SearchSpace, Uniform
from trainables.config import ArmConfig, ConstraintConfig, DataConfig, ModelConfig

# First guesses of alpha, from early experiments on UCSD Ped2: the paper's 0.25 held with five
# layers; with seven the last two were at their floor before (ratios of 0.89 after 600 steps).
ALPHAS: dict[int, float | None] = {3: 0.25, 5: 0.25, 7: 0.15}
# What a winner must ask for: half of the first guess's descent, in logarithms.
LEAST = {3: half_of(0.25, 2), 5: half_of(0.25, 4), 7: half_of(0.15, 6)}
RANGES = {n: Uniform(least_alpha(least, n - 1), 0.45) for n, least in LEAST.items()}

SPACE = SearchSpace(
    name="video_denoising_dust",
    summary="DUST on Avenue, ShanghaiTech, Ped2: 3, 5, 7 layers x 5 noise levels, Table 3",
    base=ArmConfig(
        data=DataConfig(name="ucsd_ped2"),
        model=ModelConfig(name="dust"),
        steps=2000,
        batch_size=16,
        report_every=200,
        constraint=ConstraintConfig(
            alpha=0.25,
            # The code starts at zero, so layer 1 starts near chance: the paper's f0 of 6.5 is 0.8
            # of the best constant's loss on Ped2. Multipliers scale with it (docs/method.md).
            reference_loss=0.8,
            reference_unit="constant",
            dual_lr=1e-2,
            resilience=0.05,
        ),
    ),
    settings=video_settings("dust", ALPHAS, RANGES, LEAST),
    ranges={
        "constraint.alpha": Uniform(0.05, 0.45),  # fraction of its loss each layer must remove
        "constraint.dual_lr": LogUniform(1e-3, 1e-1),  # of the clipped relative signal
        "constraint.resilience": LogDecay(0.1, 10.0),  # by what it takes off a multiplier
    },
    n_proposals=8,
    search_seeds=(0, 1),
)

# Trained to where more steps no longer change the unconstrained arm much.
FULL = longer(SPACE, 5000, eval_windows=96)
