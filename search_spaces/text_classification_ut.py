"""UT on DistilBERT's words, IMDb and MNLI, the paper's depths and training noise.

Source: arXiv 2601.17257, Table 4. Other words: ``--set model.checkpoint=NAME_OR_FOLDER``.
"""

from dataclasses import replace

from search_spaces.paper.text import CHECKPOINTS, text_settings
from search_spaces.space import LogDecay, LogUniform, SearchSpace, Uniform
from trainables.config import ArmConfig, ConstraintConfig, DataConfig, ModelConfig

# First guesses of alpha: half of the descent, in logarithms, that leads from chance to about 0.35
# nats on IMDb. On MNLI words without their order hardly beat chance: there is little to ask for.
ALPHAS = {
    "imdb": {3: 0.11, 5: 0.065, 7: 0.05, 9: 0.04},
    "mnli": {3: 0.02, 5: 0.012, 7: 0.01, 9: 0.01},
}
SPACE = SearchSpace(
    name="text_classification_ut",
    summary="UT on IMDb and MNLI: 3, 5, 7, 9 layers x 6 noise levels, Table 4; needs a GPU",
    base=ArmConfig(
        task="text_classification",
        data=DataConfig(name="imdb", dev_share=0.1),
        model=ModelConfig(name="text_ut", checkpoint=CHECKPOINTS["ut"]),
        steps=2000,
        batch_size=32,
        primal_lr=3e-4,
        readout_lr=1e-3,
        warmup_share=0.1,
        decay_share=0.9,
        report_every=200,
        eval_windows=200,
        shifts=("token_drop", "token_swap", "typos"),
        device="cuda",
        constraint=ConstraintConfig(
            alpha=0.1,
            reference="virtual_layer0",
            reference_loss=1.0,  # chance
            reference_unit="constant",
            dual_lr=5e-3,
        ),
    ),
    settings=text_settings("text_ut", "ut", ALPHAS, 0.005),
    ranges={
        "constraint.alpha": Uniform(0.005, 0.3),  # fraction of its loss each layer must remove
        "constraint.dual_lr": LogUniform(5e-4, 5e-2),  # of the clipped relative signal
        "constraint.resilience": LogDecay(0.1, 10.0),  # by what it takes off a multiplier
    },
    n_proposals=8,
    search_seeds=(0, 1),
)

# Three epochs of IMDb, half of one of MNLI. Scored on all of IMDb's dev, on 6,000 pairs of MNLI's
# (docs/text.md, How well accuracies are known).
FULL = replace(
    SPACE,
    base=SPACE.base.with_fields({"steps": 6000, "report_every": 600, "eval_windows": 2000}),
    n_proposals=16,
)
