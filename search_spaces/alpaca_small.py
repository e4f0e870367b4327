"""A small decoder, tuned on Alpaca: instruction tuning on a laptop.

The question: are the constraints met on held-out instructions, and does it pay? The network has 4
blocks and was trained on the same texts for minutes (``python -m
trainables.datasets.text.small_decoder``, docs/text.md): it knows what answers look like and little
of what they say.
"""

from search_spaces.catalog import setting
from search_spaces.ranges import LogReach
from search_spaces.space import LogDecay, SearchSpace, Uniform
from trainables.config import ArmConfig, ConstraintConfig, DataConfig, ModelConfig

LAYERS = 4
# Held out, plain training takes layers 1 to 4 to 0.47, 0.96, 0.95 and 0.94 of what came before,
# after 4 epochs of the decoder's own training, and the last to 0.71 of chance: layer 2 meets 0.04
# unasked, and no alpha above 0.08 is within reach of all layers together (0.92^4 = 0.716).
ALPHA, LOWEST, HIGHEST = 0.055, 0.045, 0.07

SPACE = SearchSpace(
    name="alpaca_small",
    summary="A small decoder on Alpaca, Lagrangian and detached, on a laptop",
    base=ArmConfig(
        task="instruction_tuning",
        # every prompt must leave room for an answer; batches are of like length
        data=DataConfig(name="alpaca", dev_fraction=0.1, max_length=1024, template="plain"),
        model=ModelConfig(
            name="decoder", layers=LAYERS, checkpoint="small_decoder"
        ),
        train_gamma=0.25,
        test_gammas=(0.0, 0.25, 0.5, 0.75, 1.0),
        steps=200,
        batch_size=16,
        primal_lr=1e-3,
        weight_decay=0.01,
        warmup_fraction=0.05,
        decay_fraction=0.5,
        report_every=100,
        eval_windows=40,
        eval_draws=1,
        constraint=ConstraintConfig(
            alpha=ALPHA,
            reference="virtual_layer0",
            reference_unit="constant",  # the entropy of the answers' words
            dual_signal="violation",
            signal_clip=1.0,
            dual_lr=0.007,
            resilience=0.05,
        ),
    ),
    settings=tuple(
        setting(
            "alpaca", "decoder", LAYERS, 0.25, called="small", detached=detached, alpha=ALPHA,
            least_descent=0.16,  # a little less than 1 - (1 - LOWEST)^4
        )
        for detached in (False, True)
    ),
    ranges={
        "constraint.alpha": Uniform(LOWEST, HIGHEST),  # fraction of its loss each layer must remove
        "constraint.dual_lr": LogReach(0.2, 2.0),  # of the violation in units of chance; 2 overshot
        "constraint.resilience": LogDecay(0.05, 5.0),  # by what it takes off a multiplier
    },
    n_proposals=3,
    search_seeds=(0, 1),
)  # fmt: skip
