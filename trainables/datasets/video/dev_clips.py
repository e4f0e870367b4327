"""Choice of the clips that are dev: the last of training, or those a seed draws."""

from __future__ import annotations

from trainables.config.arm import DataConfig
from trainables.datasets.by_split import rounded_up
from trainables.datasets.video.clips import RawClip, RawVideo
from trainables.errors import BadData, InvalidValue
from trainables.primal_dual.certificate import LEAST_UNITS
from trainables.random_keys import seed_of

FEWEST_DRAWN = 4  # training clips from which a seed draws those of dev


def cut(raw: RawVideo, data: DataConfig) -> tuple[tuple[RawClip, ...], int, tuple[RawClip, ...]]:
    """Training clips followed by dev clips, how many of them are dev, and the test clips."""
    test = raw.test[: data.max_clips]
    if raw.dev:
        if data.max_clips is None:
            return raw.train + raw.dev, len(raw.dev), test
        dev_count = min(len(raw.dev), max(1, rounded_up(data.max_clips * data.dev_fraction)))
        dev_count = min(dev_count, data.max_clips - 1)
        return raw.train[: data.max_clips - dev_count] + raw.dev[:dev_count], dev_count, test
    training = raw.train[: data.max_clips]
    if len(training) < 2:
        raise BadData(
            f"{data.name} in {raw.root} has {len(training)} training clip(s), but needs at least "
            "2: one is held out as dev. Add the data set's other training clips."
        )
    return training, min(rounded_up(len(training) * data.dev_fraction), len(training) - 1), test


def idle_options(raw: RawVideo, data: DataConfig) -> tuple[str, ...]:
    """Notes on options of ``data`` that do nothing for these clips."""
    is_set = data.dev_fraction != type(data).__dataclass_fields__["dev_fraction"].default
    if not (is_set and raw.dev and data.max_clips is None):
        return ()
    return (
        f"data.dev_fraction {data.dev_fraction:g} does nothing: {data.name} has a dev split of "
        "its own.",
    )


def few_dev(raw: RawVideo, data: DataConfig) -> tuple[str, ...]:
    """A note where dev has too few clips for a certificate."""
    if len(raw.train) < 2:
        return ()
    _, dev_count, _ = cut(raw, data)
    if dev_count >= LEAST_UNITS:
        return ()
    return (
        f"dev has {dev_count} clip{'s' * (dev_count != 1)}, and fewer than {LEAST_UNITS} certify "
        "nothing: a network can only be feasible in the mean",
    )


def drawn_dev(raw: RawVideo, data: DataConfig, clips: int, dev_count: int, seed: int) -> set[int]:
    """Training clips that are dev under a seed: as many as without one."""
    why = f"it has {clips} training clips, and less than {FEWEST_DRAWN} leave no choice"
    if raw.dev:
        why = "it has a dev split of its own"
    if raw.dev or clips < FEWEST_DRAWN:
        raise InvalidValue(
            f"data.split_by_seed must be false for {data.name} in {raw.root}, got true: {why}."
        )
    ranks = sorted(range(clips), key=lambda clip: seed_of(seed, "dev", raw.train[clip].name))
    return set(ranks[:dev_count])
