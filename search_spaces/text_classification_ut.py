"""UT on DistilBERT's words, IMDb and MNLI, the paper's depths and training noise.

Source: arXiv 2601.17257, Table 4. Other words: ``--set model.checkpoint=NAME_OR_FOLDER``.
"""

from dataclasses import replace

from search_spaces import text_classification_distilbert as distilbert
from search_spaces.catalog import longer
from search_spaces.paper.text import CHECKPOINTS, text_settings
from search_spaces.space import Uniform

# First guesses of alpha: half of the descent, in logarithms, that leads from chance to about 0.35
# nats on IMDb. On MNLI words without their order hardly beat chance: there is little to ask for.
ALPHAS = {
    "imdb": {3: 0.11, 5: 0.065, 7: 0.05, 9: 0.04},
    "mnli": {3: 0.02, 5: 0.012, 7: 0.01, 9: 0.01},
}
SPACE = replace(
    distilbert.SPACE,
    name="text_classification_ut",
    summary="UT on IMDb and MNLI: 3, 5, 7, 9 layers x 6 noise levels, Table 4; needs a GPU",
    base=distilbert.SPACE.base.with_fields(
        {
            "model.name": "text_ut",
            "model.layers": 3,
            "model.checkpoint": CHECKPOINTS["ut"],
            "primal_lr": 3e-4,
            "weight_decay": 0.0,
            "dtype": "float32",
            "constraint.alpha": 0.1,
        }
    ),
    settings=text_settings("text_ut", "ut", ALPHAS),
    ranges={**distilbert.SPACE.ranges, "constraint.alpha": Uniform(0.005, 0.3)},
)

# As of DistilBERT.
FULL = longer(SPACE, 6000, eval_windows=2000)
