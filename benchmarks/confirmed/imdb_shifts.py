"""UT on short reviews of IMDb under shifts: a search that its replications repeat."""

from dataclasses import replace

from search_spaces import minilm_imdb
from search_spaces.catalog import setting
from search_spaces.space import LogUniform, Uniform

SHORT = {
    "data.max_length": 32,
    "dtype": "float32",
    "eval_draws": 1,
    "shifts": ("typos", "token_drop", "token_swap"),
}
UT = {"primal_lr": 1e-3, "steps": 400, "report_every": 200}

SPACE = replace(
    minilm_imdb.SPACE,
    name="imdb_shifts",
    summary="UT on short reviews of IMDb, Lagrangian, scored under shifts",
    base=minilm_imdb.SPACE.base.with_fields(SHORT),
    settings=(setting("imdb", "text_ut", 3, 0.4, called="ut", alpha=0.05, fields=UT),),
    ranges={
        **minilm_imdb.SPACE.ranges,
        "constraint.alpha": Uniform(0.042, 0.06),
        "constraint.dual_lr": LogUniform(0.3, 2.0),
    },
    n_proposals=4,
    search_seeds=(0,),
)
