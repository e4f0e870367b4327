"""Start points from other sweeps: stored winners, or an exported configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from search_spaces import catalog
from search_spaces.start_points import EVERY, Start
from sweep.results.sweep_view import load_sweep
from sweep.study import advice
from sweep.study.opening import named_place
from sweep.study.selection import winner_of
from trainables.config.arm import ArmConfig
from trainables.errors import Misuse
from trainables.records.objects import ObjectStore


def starts_from(
    texts: Sequence[str], objects: ObjectStore | None, *, say: Callable[[str], None]
) -> list[Start]:
    """The start points of each ``--start-from NAME[:SETTING]|FILE.json``.

    Of a sweep, settings start from the winner of the setting of their name; of one SETTING, or a
    file, all of them start from that one.

    Args:
        texts: as they were given.
        objects: where sweeps are looked for; None: elsewhere, so that only files can be read.
        say: told of a sweep that is not finished: its winners are those so far.

    Raises:
        UnknownName: there is no such sweep, or it has no such setting.
        Misuse: it has no winner, or the file is no exported configuration.
    """
    return [_of_file(t) if t.endswith(".json") else _of_sweep(t, objects, say) for t in texts]


def _of_file(text: str) -> Start:
    if not Path(text).expanduser().is_file():
        raise Misuse(f"--start-from must be a sweep or an exported file that is here, got {text}.")
    exported = catalog.find(text)
    space = exported.space
    if len(space.settings) != 1 or (exported.expected is None and space.name != "arm"):
        raise Misuse(
            f"--start-from {text} must be an exported configuration, which `sweep export` writes, "
            f"got the search space {space.name}. Give its sweep by name, or `sweep run` it."
        )
    (only,) = space.settings
    return Start(text, {EVERY: space.run(only, space.listed(only, 0) or {}, seed=0)})


def _of_sweep(text: str, objects: ObjectStore | None, say: Callable[[str], None]) -> Start:
    name, _, wanted = text.partition(":")
    if objects is None:
        raise Misuse(
            f"--start-from {text} names a sweep, and the cluster's storage is not read from here. "
            "Give an exported configuration (`sweep export`), or --point."
        )
    with named_place(objects):
        view = load_sweep(objects, name, "outcomes")
    space = view.definition.space
    if wanted:
        space.setting(wanted)  # known
    winners: dict[str, ArmConfig] = {}
    for one in view.settings:
        best = None if space.phase == "confirmation" else winner_of(one.results)
        if best is not None and wanted in ("", one.setting.name):
            point = next(p.point for p in one.proposals if p.number == best.number)
            winners[one.setting.name] = space.run(one.setting, point, seed=space.search_seeds[0])
    if not winners:
        why = advice.command("best", name, storage=objects.root)
        raise Misuse(f"--start-from {text} has no winner to start from: `{why}` says why.")
    if not view.is_finished:
        say(f"{name} is not finished: the search starts from its winners so far.")
    return Start(text, {EVERY: winners[wanted]} if wanted else winners)
