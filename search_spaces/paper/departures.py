"""Departures of a run from the paper: training, constraint, model and data.

Read off the configuration alone, so that a run as the paper describes it has none. Which forward a
model has is in ``video.DEPARTURES``; what is doubtful about a printed number, in its comparison.

Source: arXiv 2601.17257, its algorithm, appendix and Tables 1 to 5.
"""

from __future__ import annotations

from collections.abc import Iterator

from search_spaces.paper import text, video
from search_spaces.paper.spaces import ATOMS_PER_SIDE, FRAMES, PAPER_SPACES, model_of, twin
from trainables.config.arm import ArmConfig, ConstraintConfig

_DATA_SETS = (*video.DATA_SETS, *text.DATA_SETS, "alpaca")
_OTHERS = (
    "constraint.form", "constraint.reference", "constraint.dual_every",
    "constraint.dual_every_unit", "constraint.weights_by", "constraint.inner_tokens",
    "constraint.inner_layers", "train_gamma_low", "train_gamma_high", "weight_ema",
    "data.patch_size", "data.max_clips", "data.max_items", "model.lora_rank", "model.start_jitter",
)  # fmt: skip


def departures(config: ArmConfig) -> tuple[str, ...]:
    """Differences of this run from the paper's, a phrase each; empty where all is alike."""
    phrases = list(_of_training(config))
    if config.constraint is not None:
        phrases += _of_constraint(config, config.constraint)
    return (*phrases, *_of_model(config), *_of_the_rest(config))


def _of_training(config: ArmConfig) -> Iterator[str]:
    extras = []
    if config.weight_decay > 0 and not config.facts.answers:  # there the paper says AdamW, too
        extras.append(f"AdamW with a decay of {config.weight_decay:g}")
    if config.readout_lr not in (None, config.primal_lr):
        extras.append(f"a learning rate of {config.readout_lr:g} for the readout")
    shares = (("rises", config.warmup_fraction), ("falls", config.decay_fraction))
    moves = [f"{verb} over {share:.0%}" for verb, share in shares if share > 0]
    extras += [f"a learning rate that {' and '.join(moves)} of the steps"] if moves else []
    extras += [] if config.grad_clip is None else [f"gradients clipped at {config.grad_clip:g}"]
    if extras:
        yield f"trained with {', '.join(extras)}; of these the paper says nothing"
    if config.dtype == "bfloat16":
        yield "forward passes are in bfloat16; the paper speaks of no reduced precision"


def _of_constraint(config: ArmConfig, constraint: ConstraintConfig) -> Iterator[str]:
    if constraint.dual_optimizer != "adam":
        rule = {"sgd": "projected SGD"}.get(constraint.dual_optimizer, constraint.dual_optimizer)
        yield f"multipliers move by {rule}; the paper's by ADAM"
    relative, clip = constraint.dual_signal == "relative", constraint.signal_clip
    if relative or clip is not None:
        signal = "the violation over the loss allowed" if relative else "the violation"
        clipped = "" if clip is None else f", clipped at {clip:g}"
        yield f"dual steps follow {signal}{clipped}; the paper's the violation as it is"
    if not constraint.grad_through_previous:
        yield "detached: no gradient passes through the layer before; the paper's Lagrangian has it"
    if constraint.scale != "none" and constraint.form == "difference":
        yield "constraints are divided by a schedule of losses; the paper's are not"
    yield from _of_resilience(config, constraint)
    plain = constraint.warmup_steps, constraint.warmup_epochs
    wanted = 0 if config.facts.reads_texts else 1
    if plain != (0, wanted):
        steps, epochs = plain
        before = [f"{steps} steps"] * (steps > 0) + [f"{epochs} epochs"] * (epochs > 0)
        since = f"after {' and '.join(before)}" if before else "from the first step"
        paper = "after an epoch" if wanted else "from the first step, as far as it says"
        yield f"constraints act {since}; the paper's {paper}"
    if not _has_the_papers_values(config, constraint):
        printed = {
            True: "the paper's are the best of five searches for each model and data set",
            False: "the paper's are those of one search for each model, used in every comparison",
        }[config.facts.reads_texts]
        if model_of(config) == "roberta":
            printed = "the paper prints none for this model"
        yield f"alpha and f0 are searched or chosen for this setting; {printed}"


def _of_resilience(config: ArmConfig, constraint: ConstraintConfig) -> Iterator[str]:
    wanted = "decay" if config.facts.reads_texts else "slack_restart"
    if constraint.resilience_form == wanted:
        return
    form = {
        "decay": "a decay of the multipliers",
        "slack": "slack variables that are kept",
        "slack_restart": "slack variables that every epoch sets to zero",
    }[constraint.resilience_form]
    paper = {
        "decay": "a decay of the multipliers",
        "slack_restart": "slack variables, set to zero after every epoch, at a fixed price",
    }[wanted]
    yield f"resilience is {form}; the paper's is {paper}"


def _has_the_papers_values(config: ArmConfig, constraint: ConstraintConfig) -> bool:
    """True when the paper prints this alpha and f0 for such a model."""
    model = model_of(config)
    if config.facts.reads_texts:
        best = text.BEST.get((model, config.data.name))
        known = None if best is None else (best.alpha, best.reference_loss)
    else:
        row = video.BEST.get(model)
        known = None if row is None else (row.alpha, row.reference_loss_here)
    is_absolute = constraint.reference_unit == "absolute"
    return is_absolute and (constraint.alpha, constraint.reference_loss) == known


def _of_model(config: ArmConfig) -> Iterator[str]:
    model, data = config.model, config.data
    if model.name == "dust" and (atoms := model.atoms_per_side**2) < ATOMS_PER_SIDE**2:
        yield f"DUST has {atoms} atoms; the paper's dictionary likely {ATOMS_PER_SIDE**2:,}"
    if config.task == "video_denoising" and data.frames != FRAMES:
        yield f"sequences have {data.frames} frames; the paper's likely {FRAMES}"
    if model_of(config) == "distilbert":
        yield "DistilBERT has 6 blocks; in the paper's tables it has 12"
    if model.name in ("encoder", "decoder"):
        yield "word embeddings are frozen in both arms; the paper fine-tunes all weights"
    if model.name in ("encoder", "decoder", "vit"):
        yield "there is no dropout; the paper's networks have that of their checkpoints"
    if config.facts.answers:
        yield (
            "losses and accuracies are means over samples of their means over tokens; the paper's "
            "are likely means over all tokens"
        )


def _of_the_rest(config: ArmConfig) -> Iterator[str]:
    """Fields that have no words of their own, beside the paper's own space of such a model."""
    space = PAPER_SPACES[f"paper_{'text' if config.facts.reads_texts else 'video'}_ut"]
    paper = PAPER_SPACES.get(twin(config), space).base
    for name in _OTHERS:
        value, other = config.value_of(name), paper.value_of(name)
        if config.value_of(name.rpartition(".")[0] or name) is not None and value != other:
            yield f"{name} is {value}; in the paper's own space it is {other}"
    if config.data.name not in _DATA_SETS:
        yield f"trained on {config.data.name}; the paper has other data"
