"""MiniLM on MNLI, a shorter companion of minilm_imdb: three labels, two sentences.

MiniLM was trained on these premises, for similarity: no accuracy here is that of a model which
never saw them (docs/text.md). Both arms start from the same weights, so their difference stands.
"""

from search_spaces import minilm_imdb
from search_spaces.catalog import setting
from search_spaces.space import SearchSpace, Uniform

SPACE = SearchSpace(
    name="minilm_mnli",
    summary="MiniLM on MNLI, Lagrangian, 3 seeds of one proposal",
    base=minilm_imdb.SPACE.base.with_fields(
        {"data.name": "mnli", "data.max_length": 48, "constraint.alpha": 0.01}
    ),
    settings=(setting("mnli", "encoder", None, 0.4, called="minilm"),),
    ranges={**minilm_imdb.SPACE.ranges, "constraint.alpha": Uniform(0.002, 0.03)},
    n_proposals=1,
    search_seeds=(0, 1, 2),
)
