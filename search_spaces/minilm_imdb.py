"""MiniLM, and UT on MiniLM's words, on IMDb: four seeds of one proposal.

The questions: are the constraints met on held-out reviews, and does it pay? Small enough for two
CPU cores. One proposal a setting, many seeds: nothing is selected, so that the differences of the
pairs are free of selection bias. The weights: docs/text.md.
"""

from search_spaces.catalog import setting
from search_spaces.space import LogDecay, LogUniform, SearchSpace, Uniform
from trainables.config import ArmConfig, ConstraintConfig, DataConfig, ModelConfig

SPACE = SearchSpace(
    name="minilm_imdb",
    summary="MiniLM and UT on IMDb, Lagrangian and detached, 4 seeds of one proposal",
    base=ArmConfig(
        task="text_classification",
        data=DataConfig(name="imdb", dev_fraction=0.1, max_length=64),
        model=ModelConfig(
            name="encoder",
            layers=0,
            checkpoint="sentence-transformers/all-MiniLM-L6-v2",
            pooling="mean",
        ),
        steps=400,
        batch_size=16,
        primal_lr=5e-5,
        readout_lr=1e-3,
        weight_decay=0.01,
        warmup_fraction=0.1,
        decay_fraction=0.9,
        report_every=200,
        eval_windows=300,
        eval_draws=2,
        dtype="bfloat16",
        constraint=ConstraintConfig(
            alpha=0.05,
            reference="virtual_layer0",
            reference_loss=1.0,  # chance
            reference_unit="constant",
            dual_signal="violation",
            signal_clip=1.0,
            dual_lr=0.5,
            resilience=1e-3,
        ),
    ),
    settings=tuple(
        setting(
            "imdb", model, layers, 0.4, called=called, detached=detached, alpha=alpha, fields=fields
        )
        for model, layers, called, alpha, fields in (
            ("encoder", None, "minilm", 0.05, {}),
            ("text_ut", 3, "ut", 0.08, {"primal_lr": 1e-3, "steps": 800, "report_every": 400}),
        )
        for detached in (False, True)
    ),
    ranges={
        "constraint.alpha": Uniform(0.02, 0.2),  # fraction of its loss each layer must remove
        "constraint.dual_lr": LogUniform(0.1, 2.0),  # of the violation in units of chance
        "constraint.resilience": LogDecay(0.05, 10.0),  # by what it takes off a multiplier
    },
    n_proposals=1,
    search_seeds=(0, 1, 2, 3),
)
