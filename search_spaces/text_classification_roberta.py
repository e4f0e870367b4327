"""RoBERTa-large on IMDb and MNLI over the paper's training noise (Table 4).

Source: arXiv 2601.17257. The depth makes it ``roberta-large``, whose base size has 12; it is read
from the checkpoint. It trains on a GPU of 24 GB or more. Another encoder: ``--set
model.checkpoint=NAME_OR_FOLDER``.
"""

from dataclasses import replace

from search_spaces.catalog import half_of, setting, twice
from search_spaces.paper.text import CHECKPOINTS, TRAIN_GAMMAS
from search_spaces.space import LogDecay, LogUniform, SearchSpace, Uniform
from trainables.config import ConstraintConfig, DataConfig, ModelConfig, RunConfig

# alpha: half of the descent, in logarithms, from chance to what such encoders reach, over 24
# layers: 0.69 to about 0.12 nats on IMDb, 1.10 to 0.35 on MNLI.
ALPHAS = {"imdb": 0.035, "mnli": 0.025}

SPACE = SearchSpace(
    name="text_classification_roberta",
    summary="RoBERTa-large on IMDb and MNLI: 6 noise levels, Table 4; needs a GPU",
    base=RunConfig(
        task="text_classification",
        data=DataConfig(name="imdb", dev_share=0.1),
        model=ModelConfig(name="encoder", layers=0, checkpoint=CHECKPOINTS["roberta"]),
        steps=2000,
        batch_size=32,
        accumulate=2,  # 24 layers keep twice what 16 GB hold
        primal_lr=1e-5,
        readout_lr=1e-3,
        weight_decay=0.01,
        warmup_share=0.1,
        decay_share=0.9,
        report_every=200,
        eval_windows=200,
        shifts=("token_drop", "token_swap", "typos"),
        dtype="bfloat16",
        device="cuda",
        constraint=ConstraintConfig(
            alpha=0.035,
            reference="virtual_layer0",
            reference_loss=1.0,  # chance
            reference_unit="constant",
            dual_lr=5e-3,
        ),
    ),
    settings=tuple(
        setting(
            data,
            "encoder",
            None,
            gamma,
            called="roberta",
            alpha=alpha,
            least_descent=half_of(alpha, 24),
            ranges={"constraint.alpha": Uniform(0.005, twice(alpha))},
        )
        for data, alpha in ALPHAS.items()
        for gamma in TRAIN_GAMMAS
    ),
    ranges={
        "constraint.alpha": Uniform(0.005, 0.1),  # fraction of its loss each layer must remove
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
