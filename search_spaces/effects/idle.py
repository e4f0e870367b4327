"""Effect of a searched range within a run: values that are searched in vain.

Counted from the ranges and the length of a run alone, before anything is trained. Two fields of the
constraint can be idle: a resilience whose decay takes next to nothing off a multiplier until the
run ends, and a dual_lr by which no multiplier can come far enough to count beside the objective. An
alpha can ask for too little to win.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from search_spaces.effects.by_effect import DUAL_LR, RESILIENCE, STATED, decaying, stated
from search_spaces.effects.descent import too_weak
from search_spaces.ranges import Choice, at_fraction, decay_of
from search_spaces.space import SearchSpace, Setting
from trainables.config.arm import ArmConfig, ConstraintConfig
from trainables.config.test_conditions import unseen_gammas
from trainables.plain import Json
from trainables.primal_dual.schedule import effective_dual_steps

IDLE_DECAY = 0.2  # a smaller fraction of a multiplier lost over the whole run is no effect
IDLE_WEIGHT = 0.05  # a layer weight below this counts for nothing beside the output's own, 1
MOST = 0.5  # of the box without effect: a warning
GRID = 16  # values of each range that are looked at


def idle_ranges(space: SearchSpace) -> list[str]:
    """Sentences on fields that are searched in vain, and where nothing unseen is measured."""
    settings_by_text: dict[str, list[str]] = {}
    known: dict[str, list[str]] = {}  # most settings differ in nothing that matters here
    for setting in space.settings:
        key = _what_matters(space, setting)
        if key not in known:
            known[key] = list(_of_setting(space, setting))
        for text in (*known[key], *too_weak(space, setting), *_nothing_unseen(space, setting)):
            settings_by_text.setdefault(text, []).append(setting.name)
    count = len(space.settings)
    return [
        text if len(names) == count else f"{text} In {names[0]}" + _more(len(names) - 1)
        for text, names in settings_by_text.items()
    ]


def _what_matters(space: SearchSpace, setting: Setting) -> str:
    """A key of what idle ranges depend on: settings with equal keys have the same ones."""
    config = space.base.with_fields({**setting.fields, "constraint.alpha": 0.1})  # it plays no part
    ranges = {n: r for n, r in space.ranges_of(setting).items() if n != "constraint.alpha"}
    run = (config.constraint, config.steps, config.decay_fraction, config.warmup_fraction)
    return repr((ranges, run, config.train_gamma))


def _more(count: int) -> str:
    return f" and {count} more." if count else "."


def _of_setting(space: SearchSpace, setting: Setting) -> Iterator[str]:
    config = space.base.with_fields(setting.fields)
    constraint = config.constraint
    assert constraint is not None  # a space's base is constrained
    if constraint.dual_every_unit != "step" or constraint.warmup_epochs > 0:
        return  # how many dual steps there are, only the data say
    ranges = space.ranges_of(setting)
    steps = effective_dual_steps(config, steps_per_epoch=1, until=config.steps)
    names = [n for n in STATED.values() if n in ranges]
    axes = [
        ranges[n].values  # type: ignore[union-attr]
        if isinstance(ranges[n], Choice)
        else tuple(at_fraction(ranges[n], (k + 0.5) / GRID) for k in range(GRID))
        for n in names
    ]
    own = {DUAL_LR: constraint.dual_lr, RESILIENCE: constraint.resilience}
    rest = {n: at_fraction(values, 0.5) for n, values in ranges.items() if n not in names}
    points: list[Mapping[str, Json]] = []
    for values in itertools.product(*axes):
        point = space.point_of(setting, {**rest, **dict(zip(names, values, strict=True))})
        points.append({**own, **point})
    if RESILIENCE in names:
        decays = [decay_of(p[RESILIENCE], **decaying(space.effect_run(setting, p))) for p in points]
        idle = [-math.expm1(-decay) < IDLE_DECAY for decay in decays]
        share = sum(idle) / len(idle)
        if share > MOST:
            is_stated = RESILIENCE in stated(ranges)
            by_effect = "" if is_stated else ", or state it by what it does: LogDecay(0.1, 10)"
            yield (
                f"{RESILIENCE} does next to nothing in {share:.0%} of the box: over the run "
                f"it takes less than {IDLE_DECAY:.0%} off a multiplier there. Raise its range"
                f"{by_effect}."
            )
    largest = _largest_scale(config, constraint)
    if DUAL_LR in names and largest is not None:
        clip = 1.0 if constraint.is_adam else constraint.signal_clip
        if clip is None or constraint.dual_optimizer in ("nupi", "augmented"):
            return  # nothing bounds how far a multiplier comes, or something else moves it, too
        idle = [clip * p[DUAL_LR] * steps < IDLE_WEIGHT * largest for p in points]
        share = sum(idle) / len(idle)
        if share > MOST:
            yield (
                f"{DUAL_LR} is too small to do anything in {share:.0%} of its range: in "
                f"{steps:.0f} dual steps a layer's weight cannot reach {IDLE_WEIGHT:g} there, "
                "the output's own being 1. Raise it, or train longer."
            )


def _nothing_unseen(space: SearchSpace, setting: Setting) -> Iterator[str]:
    """A sentence where no test condition lies beyond what training or selection looks at."""
    config = space.base.with_fields(setting.fields)
    if unseen_gammas(config) or config.shifts:
        return
    near = config.train_gamma + config.facts.near_shift
    yield (
        f"test_gammas has none that is unseen, so robustness is not measured: seen are those up to "
        f"{near:g}, and the first above train_gamma. Add one beyond them."
    )


def _largest_scale(config: ArmConfig, constraint: ConstraintConfig) -> float | None:
    """The divisor that makes a multiplier the first layer's weight, over f_c; None: unknown.

    The unchanged input's loss over f_c is about train_gamma squared (docs/method.md, Training).
    """
    if constraint.scale == "none" or constraint.form == "ratio":
        return 1.0 if constraint.form == "difference" else None
    unit = {"constant": 1.0, "identity": config.train_gamma**2, "absolute": None}
    value = unit[constraint.reference_unit]
    return None if value is None else constraint.reference_loss * value
