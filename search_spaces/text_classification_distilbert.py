"""DistilBERT on IMDb and MNLI over the paper's training noise (arXiv 2601.17257).

Six blocks, where the paper's tables say 12; the depth is read from the checkpoint. Another encoder:
``--set model.checkpoint=NAME_OR_FOLDER``. It trains on a GPU; ``--set device=cpu --set
dtype=float32`` is for small ones.
"""

from search_spaces.catalog import longer
from search_spaces.paper.text import CHECKPOINTS, text_settings
from search_spaces.space import LogDecay, LogUniform, SearchSpace, Uniform
from trainables.config import ArmConfig, ConstraintConfig, DataConfig, ModelConfig

# alpha: half of the descent, in logarithms, from chance to what such encoders reach, over six
# layers: 0.69 to about 0.25 nats on IMDb, 1.10 to 0.55 on MNLI.
ALPHAS = {"imdb": {6: 0.08}, "mnli": {6: 0.055}}

SPACE = SearchSpace(
    name="text_classification_distilbert",
    summary="DistilBERT on IMDb and MNLI: 6 noise levels, Table 4; needs a GPU",
    base=ArmConfig(
        task="text_classification",
        data=DataConfig(name="imdb", dev_fraction=0.1),
        model=ModelConfig(name="encoder", layers=0, checkpoint=CHECKPOINTS["distilbert"]),
        steps=2000,
        batch_size=32,
        primal_lr=3e-5,
        readout_lr=1e-3,
        weight_decay=0.01,
        warmup_fraction=0.1,
        decay_fraction=0.9,
        report_every=200,
        eval_windows=200,
        shifts=("token_drop", "token_swap", "typos"),
        dtype="bfloat16",
        device="cuda",
        constraint=ConstraintConfig(
            alpha=0.08,
            reference="virtual_layer0",
            reference_loss=1.0,  # chance
            reference_unit="constant",
            dual_lr=5e-3,
        ),
    ),
    settings=text_settings("encoder", "distilbert", ALPHAS, names_depth=False),
    ranges={
        "constraint.alpha": Uniform(0.01, 0.2),  # fraction of its loss each layer must remove
        "constraint.dual_lr": LogUniform(5e-4, 5e-2),  # of the clipped relative signal
        "constraint.resilience": LogDecay(0.1, 10.0),  # by what it takes off a multiplier
    },
    n_proposals=8,
    search_seeds=(0, 1),
)

# 8.5 passes over IMDb, half of one over MNLI. Scored on all of IMDb's dev, on 6,000 pairs of MNLI's
# (docs/text.md, How well accuracies are known).
FULL = longer(SPACE, 6000, eval_windows=2000)
