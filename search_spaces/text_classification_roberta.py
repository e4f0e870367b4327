"""RoBERTa-large on IMDb and MNLI over the paper's training noise (Table 4).

Source: arXiv 2601.17257. The depth makes it ``roberta-large``, whose base size has 12; it is read
from the checkpoint. It trains on a GPU of 24 GB or more. Another encoder: ``--set
model.checkpoint=NAME_OR_FOLDER``.
"""

from dataclasses import replace

from search_spaces import text_classification_distilbert as distilbert
from search_spaces.catalog import longer
from search_spaces.paper.text import CHECKPOINTS, text_settings
from search_spaces.space import Uniform

# alpha: half of the descent, in logarithms, from chance to what such encoders reach, over 24
# layers: 0.69 to about 0.12 nats on IMDb, 1.10 to 0.35 on MNLI.
ALPHAS = {"imdb": {24: 0.035}, "mnli": {24: 0.025}}

SPACE = replace(
    distilbert.SPACE,
    name="text_classification_roberta",
    summary="RoBERTa-large on IMDb and MNLI: 6 noise levels, Table 4; needs a GPU",
    base=distilbert.SPACE.base.with_fields(
        {
            "model.checkpoint": CHECKPOINTS["roberta"],
            "accumulate": 2,  # 24 layers keep twice what 16 GB hold
            "primal_lr": 1e-5,
            "constraint.alpha": 0.035,
        }
    ),
    settings=text_settings("encoder", "roberta", ALPHAS, names_depth=False),
    ranges={**distilbert.SPACE.ranges, "constraint.alpha": Uniform(0.005, 0.1)},
)

# As of DistilBERT.
FULL = longer(SPACE, 6000, eval_windows=2000)
