"""MiniLM on IMDb, shortened: the search that docs/confirmed.md confirms."""

from dataclasses import replace

from search_spaces import minilm_imdb
from search_spaces.catalog import setting
from search_spaces.space import LogUniform, Uniform

SHORT = {
    "data.max_length": 32,
    "steps": 300,
    "report_every": 100,
    "primal_lr": 5e-5,
    "readout_lr": 3e-3,
    "test_gammas": (0.0, 0.4, 0.8, 1.2, 1.6, 2.0),
    "eval_draws": 1,
    "constraint.dual_lr": 0.3,
}

SPACE = replace(
    minilm_imdb.SPACE,
    name="minilm_short",
    base=minilm_imdb.SPACE.base.with_fields(SHORT),
    settings=(setting("imdb", "encoder", None, 0.4, called="minilm", alpha=0.03),),
    ranges={
        **minilm_imdb.SPACE.ranges,
        "constraint.alpha": Uniform(0.02, 0.05),
        "constraint.dual_lr": LogUniform(0.1, 1.0),
    },
    n_proposals=3,
    search_seeds=(0, 1),
)
