"""The paper's settings in its own words: a search space for each of six models.

What the paper says is set as it says; ``departures`` lists what cannot be. Learning rates, the
resilience coefficient, batches and epochs are lost there and chosen here. What it leaves open has a
field (docs/paper.md).

Source: arXiv 2601.17257, appendices B and C, Tables 1 and 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from search_spaces.effects.passes import epoch_steps
from search_spaces.paper import text, video
from search_spaces.paper.rows import setting
from search_spaces.ranges import LogUniform
from search_spaces.space import SearchSpace, Setting
from trainables.config.arm import ArmConfig, ConstraintConfig, DataConfig, ModelConfig
from trainables.plain import Json

FRAMES = 20  # T; not given: that of the networks which DUST follows
ATOMS_PER_SIDE = 32  # 1,024 atoms; given is "overcomplete"
EPOCHS = 10  # of video; not given
SEARCHED = ("ucsd_ped2", 0.09)  # data and train gamma of the one search of a model on video
VIT = "google/vit-base-patch16-224"

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
    """The length of a run on these data: so many steps, a report an epoch."""
    steps = epoch_steps(base.with_fields({"data.name": data}))
    assert steps is not None  # the sizes of the paper's data are known
    return {"steps": EPOCHS * steps, "report_every": steps}


def _text(model: str, summary: str, fields: Mapping[str, Json]) -> SearchSpace:
    """Table 4 of a model: five proposals and five seeds of every setting."""
    name = "text_ut" if model == "ut" else "encoder"
    base = ArmConfig(
        task="text_classification",
        data=DataConfig(name="imdb", dev_fraction=0.1),
        model=ModelConfig(name=name, layers=3, checkpoint=text.CHECKPOINTS[model]),
        steps=2000,
        decay_fraction=0.0,
        grad_clip=None,
        report_every=200,
        eval_windows=200,
        early_stop=False,
        constraint=replace(_PRIMAL_DUAL, reference="virtual_layer0", resilience=0.01),
    ).with_fields(fields)
    return SearchSpace(
        name=f"paper_text_{model}",
        summary=summary,
        base=base,
        settings=tuple(
            _text_setting(name, model, data, layers, gamma)
            for data in text.DATA_SETS
            for layers in (text.LAYERS["ut"] if model == "ut" else (None,))
            for gamma in text.TRAIN_GAMMAS
        ),
        ranges={"constraint.dual_lr": _DUAL_LR},
        n_proposals=5,
        search_seeds=(0, 1, 2, 3, 4),
    )


def _text_setting(name: str, model: str, data: str, layers: int | None, gamma: float) -> Setting:
    best = text.BEST.get((model, data))
    f0 = None if best is None else best.reference_loss
    fields: dict[str, Json] = {} if f0 is None else {"constraint.reference_loss": f0}
    return setting(
        data, name, layers, gamma,
        called=model, alpha=None if best is None else best.alpha, fields=fields,
    )  # fmt: skip


PAPER_SPACES: Mapping[str, SearchSpace] = {
    space.name: space
    for space in (
        _video(
            "ut",
            "UT of eqs. (47) and (48) as the paper has it, Table 3",
            {"model.variant": "literal", "primal_lr": 3e-4},
        ),
        _video(
            "dust",
            "DUST as the paper has it: one dictionary without constraints, Table 3",
            {"model.variant": "paper", "model.atoms_per_side": ATOMS_PER_SIDE, "batch_size": 16},
        ),
        _video(
            "vit",
            "ViT-B/16 as the paper has it, Table 3; needs a GPU",
            {
                "task": "frame_denoising",
                "data.frame_size": 224,
                "model.layers": 12,
                "model.checkpoint": VIT,
                "primal_lr": 1e-4,
                "batch_size": 16,
                "device": "cuda",
            },
        ),
        _text("ut", "UT as the paper has it, Table 4; needs a GPU", {"primal_lr": 3e-4}),
        _text(
            "distilbert",
            "DistilBERT as the paper has it, Table 4; needs a GPU",
            {"model.layers": 0, "primal_lr": 3e-5, "device": "cuda"},
        ),
        _text(
            "roberta",
            "RoBERTa-large as the paper has it, Table 4; needs a GPU",
            {
                "model.layers": 0,
                "primal_lr": 1e-5,
                "accumulate": 2,
                "device": "cuda",
                "constraint.alpha": 0.035,  # Table 2 has no row of it
            },
        ),
    )
}


def twin(config: ArmConfig) -> str:
    """The space above that trains the paper's model of this kind; '' where it has none."""
    if config.task in ("video_denoising", "frame_denoising"):
        name = f"paper_video_{config.model.name}"
    elif config.model.name == "text_ut":
        name = "paper_text_ut"
    elif config.model.name == "encoder":
        is_large = config.model.checkpoint == text.CHECKPOINTS["roberta"]
        name = "paper_text_roberta" if is_large else "paper_text_distilbert"
    else:
        name = ""
    return name if name in PAPER_SPACES else ""
