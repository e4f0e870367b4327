"""The paper's settings in its own words: a search space for each of six models.

What the paper says is set as it says; ``departures`` lists what cannot be. Learning rates, the
resilience coefficient, batches and epochs are lost there and chosen here. What it leaves open has a
field (docs/paper.md).

Source: arXiv 2601.17257, appendices B and C, Tables 1 and 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from search_spaces.effects.passes import epoch_steps
from search_spaces.paper import text, video
from search_spaces.paper.rows import setting
from search_spaces.ranges import LogUniform
from search_spaces.space import SearchSpace, Setting
from trainables.config.arm import ArmConfig, ConstraintConfig, DataConfig, ModelConfig
from trainables.plain import Json

FRAMES = 20  # T; not given: that of the networks which DUST follows
ATOMS_PER_SIDE = 32  # 1,024 atoms; given is "overcomplete"
EPOCHS, TEXT_EPOCHS = 10, 3  # not given
SEARCHED = ("ucsd_ped2", 0.09)  # data and train gamma of the one search of a model on video
LONGEST_REPORT = 2000  # steps between reports, at most: an hour without one is taken for a hang
_OF_CHECKPOINTS = {name: model for model, name in text.CHECKPOINTS.items() if model != "ut"}
_NAMES = {"text_ut": "ut"}  # what the paper calls a model of ours

# Algorithm 1: multipliers by an Adam of their own, which follow the violations as they are.
_PRIMAL_DUAL = ConstraintConfig(
    reference_unit="absolute",
    scale="none",
    dual_optimizer="adam",
    dual_signal="violation",
    signal_clip=None,
    dual_lr=1e-2,
    resilience=0.1,
)
_DUAL_LR = LogUniform(1e-3, 1.0)


def _video(model: str, summary: str, fields: Mapping[str, Json]) -> SearchSpace:
    """Table 3 of a model: the shallowest network is searched at one noise, the rest has one try."""
    best = video.BEST[model]
    base = ArmConfig(
        data=DataConfig(name=SEARCHED[0], frames=FRAMES),
        train_gamma=SEARCHED[1],
        decay_fraction=0.0,
        grad_clip=None,
        early_stop=False,
        constraint=_PRIMAL_DUAL,
    ).with_fields(
        {
            "model.name": model,
            "constraint.alpha": best.alpha,
            "constraint.reference_loss": best.reference_loss_here,
            "constraint.resilience_form": "slack_restart",
            "constraint.warmup_epochs": 1,
            **fields,
        }
    )
    base = base.with_fields(_epochs(base, SEARCHED[0]))
    others = {data: _epochs(base, data) for data in video.DATA_SETS} | {SEARCHED[0]: {}}
    rows = (
        setting(data, model, layers, gamma, fields=others[data])
        for data in video.DATA_SETS
        for layers in video.LAYERS[model]
        for gamma in video.TRAIN_GAMMAS
    )
    searched = setting(SEARCHED[0], model, video.LAYERS[model][0], SEARCHED[1]).name
    return SearchSpace(
        name=f"paper_video_{model}",
        summary=summary,
        base=base,
        settings=tuple(r if r.name == searched else replace(r, n_proposals=1) for r in rows),
        ranges={"constraint.dual_lr": _DUAL_LR},
        search_seeds=(0,),
    )


def _epochs(base: ArmConfig, data: str) -> dict[str, Json]:
    """The length of a run on these data, and how often it reports: once an epoch, or oftener."""
    steps = epoch_steps(base.with_fields({"data.name": data}))
    assert steps is not None  # the sizes of the paper's data are known
    epochs = TEXT_EPOCHS if base.facts.reads_texts else EPOCHS
    return {"steps": epochs * steps, "report_every": min(steps, LONGEST_REPORT)}


def _text(model: str, summary: str, fields: Mapping[str, Json]) -> SearchSpace:
    """Table 4 of a model: five proposals and five seeds of every setting."""
    name = "text_ut" if model == "ut" else "encoder"
    base = ArmConfig(
        task="text_classification",
        data=DataConfig(name="imdb", dev_fraction=0.1),
        model=ModelConfig(name=name, layers=3, checkpoint=text.CHECKPOINTS[model]),
        decay_fraction=0.0,
        grad_clip=None,
        eval_windows=200,
        early_stop=False,
        constraint=replace(_PRIMAL_DUAL, reference="virtual_layer0", resilience=0.01),
    ).with_fields({"batch_size": 32, **fields})
    base = base.with_fields(_epochs(base, "imdb"))
    lengths: dict[str, dict[str, Json]] = {"imdb": {}, "mnli": _epochs(base, "mnli")}
    return SearchSpace(
        name=f"paper_text_{model}",
        summary=summary,
        base=base,
        settings=tuple(
            _text_setting(name, model, data, layers, gamma, lengths[data])
            for data in text.DATA_SETS
            for layers in (text.LAYERS["ut"] if model == "ut" else (None,))
            for gamma in text.TRAIN_GAMMAS
        ),
        ranges={"constraint.dual_lr": _DUAL_LR},
        n_proposals=5,
        search_seeds=(0, 1, 2, 3, 4),
    )


def _text_setting(
    name: str, model: str, data: str, layers: int | None, gamma: float, length: Mapping[str, Json]
) -> Setting:
    best = text.BEST.get((model, data))
    f0 = None if best is None else best.reference_loss
    values = {} if f0 is None else {"constraint.reference_loss": f0}
    return setting(
        data, name, layers, gamma,
        called=model, alpha=None if best is None else best.alpha, fields={**length, **values},
    )  # fmt: skip


PAPER_SPACES: Mapping[str, SearchSpace] = {
    space.name: space
    for space in (
        _video(
            "ut",
            "UT of eqs. (47) and (48) in the paper's words, Table 3",
            {"model.variant": "literal", "primal_lr": 3e-4},
        ),
        _video(
            "dust",
            "DUST in the paper's words: one dictionary without constraints, Table 3",
            {"model.variant": "paper", "model.atoms_per_side": ATOMS_PER_SIDE, "batch_size": 16},
        ),
        _video(
            "vit",
            "ViT-B/16 in the paper's words, Table 3; needs a GPU",
            {
                "task": "frame_denoising",
                "data.frame_size": 224,
                "model.layers": 12,
                "model.checkpoint": video.VIT,
                "primal_lr": 1e-4,
                "batch_size": 16,
                "device": "cuda",
            },
        ),
        _text(
            "ut",
            "UT in the paper's words, Table 4; needs a GPU",
            {"primal_lr": 3e-4, "device": "cuda"},
        ),
        _text(
            "distilbert",
            "DistilBERT in the paper's words, Table 4; needs a GPU",
            {"model.layers": 0, "primal_lr": 3e-5, "device": "cuda"},
        ),
        _text(
            "roberta",
            "RoBERTa-large in the paper's words, Table 4; needs a GPU",
            {
                "model.layers": 0,
                "primal_lr": 1e-5,
                "accumulate": 2,
                "device": "cuda",
                # Table 2 has no row of it.
                "constraint.alpha": 0.035,
                "constraint.reference_loss": 1.0,
            },
        ),
    )
}


def model_of(config: ArmConfig) -> str:
    """The paper's name for the model, as ``Comparison.model``; '' where it has none like it."""
    name = config.model.name
    if name == "encoder":
        return _OF_CHECKPOINTS.get(PurePosixPath(config.model.checkpoint or "").name, "")
    return _NAMES.get(name, name)


def twin(config: ArmConfig) -> str:
    """The space above of such a model; '' where there is none."""
    model = model_of(config) or "distilbert"  # the smaller of its encoders stands for others
    kind = "text" if config.facts.reads_texts else "video"
    name = f"paper_{kind}_{model}"
    return name if name in PAPER_SPACES else ""
