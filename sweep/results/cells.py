"""Cell of a table: its name, the arms behind it, and a sweep of these alone.

    SETTING[/ARM][#PROPOSAL][@SEED]

SETTING may lack the words that all settings begin with, as tables show it. Without ARM it is both
arms of the pair shown; ARM may also be a listed point, such as a control of a confirmation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from search_spaces.space import Setting
from sweep.results.aggregates import ARMS
from sweep.results.sweep_view import SettingView, SweepView
from sweep.study.arms import Arm, arms_of_proposal, baselines
from sweep.study.definition import Definition
from sweep.study.selection import closest_of, winner_of
from trainables.errors import InvalidValue, Misuse, UnknownName
from trainables.plain import Json

FORM = "SETTING[/ARM][#PROPOSAL][@SEED]"
AGAIN = "again"  # the name of the point in the sweep of a cell


@dataclass(frozen=True)
class Cell:
    """A cell as it is named; None: not said."""

    setting: str
    arm: str | None = None
    proposal: int | None = None
    seed: int | None = None


@dataclass(frozen=True)
class FoundCell:
    """The arms behind a cell."""

    definition: Definition  # a sweep of its setting, proposal and seeds alone
    named: tuple[Arm, ...]  # the arms of the cell
    beside: tuple[Arm, ...]  # the other arms of that sweep
    proposal: int
    role: str  # why this proposal: "winner", "closest", "named", or what a listed point is called


def parse_cell(text: str) -> Cell:
    """The cell of this name.

    >>> parse_cell("ped2-ut-L3/constrained#4@0")
    Cell(setting='ped2-ut-L3', arm='constrained', proposal=4, seed=0)
    """
    setting, *rest = re.split(r"(?=[/#@])", text)
    parts = {part[0]: part[1:] for part in rest}
    numbers = [parts[mark] for mark in "#@" if mark in parts]
    wrong = len(parts) < len(rest) or not all(parts.values())
    if not setting or wrong or not all(n.isascii() and n.isdecimal() for n in numbers):
        raise InvalidValue(
            f"a cell must be {FORM}, got {text!r}: a setting, and after it the arm, the number of "
            "a proposal and a seed, each once or not at all."
        )
    arm, proposal, seed = (parts.get(mark) for mark in "/#@")
    return Cell(
        setting,
        arm,
        None if proposal is None else int(proposal),
        None if seed is None else int(seed),
    )


def find_cell(view: SweepView, cell: Cell) -> FoundCell:
    """The arms that a table has in this cell.

    Raises:
        UnknownName: the sweep has no such setting, arm, proposal or seed.
        Misuse: several settings are meant, or no proposal of it has finished.
    """
    definition = view.definition
    space, name = definition.space, definition.name
    setting = _setting(view, cell.setting)
    listed = list(setting.setting.points)
    arms = list(dict.fromkeys((*ARMS, *listed)))
    if cell.arm is not None and cell.arm not in arms:
        raise UnknownName.among(f"arm of {setting.setting.name}", cell.arm, arms)
    if cell.seed is not None and cell.seed not in space.search_seeds:
        known = map(str, space.search_seeds)
        raise UnknownName.among(f"{space.phase} seed of {name}", str(cell.seed), known)
    number, role = _proposal(view, setting, cell)
    point = next(p.point for p in setting.proposals if p.number == number)
    alone = _alone(definition, setting.setting, point, cell.seed)
    ours = arms_of_proposal(alone, setting.setting.name, 0, point)
    ours = [replace(arm, proposal=number) for arm in ours]
    plain = baselines(alone, setting.setting.name)
    plain = [arm for arm in plain if arm.signature not in {a.signature for a in ours}]
    if cell.arm is None:
        return FoundCell(alone, (*ours, *plain), (), number, role)
    first, then = (plain, ours) if cell.arm == ARMS[1] else (ours, plain)
    return FoundCell(alone, tuple(first), tuple(then), number, role)


def _setting(view: SweepView, text: str) -> SettingView:
    """The one of this name, or the only one that ends so."""
    by_name = {one.setting.name: one for one in view.settings}
    if text in by_name:
        return by_name[text]
    meant = [name for name in by_name if name.endswith(f"-{text}")]
    if not meant:
        ends = [re.sub(r"^.*?-(?=L\d)", "", name) for name in by_name]  # as tables have them
        is_whole = text.partition("-")[0] in {name.partition("-")[0] for name in by_name}
        known = by_name if is_whole or len(set(ends)) < len(ends) else ends
        raise UnknownName.among(f"setting of {view.definition.name}", text, known)
    if len(meant) > 1:
        raise Misuse(
            f"{text!r} is the end of {len(meant)} settings: {', '.join(meant)}. Name one of them."
        )
    return by_name[meant[0]]


def _proposal(view: SweepView, setting: SettingView, cell: Cell) -> tuple[int, str]:
    """The number of the proposal that is meant, and why it is."""
    name, listed = setting.setting.name, list(setting.setting.points)
    stored = [proposal.number for proposal in setting.proposals]
    wanted = cell.proposal
    if cell.arm in listed:
        of_arm = listed.index(cell.arm)
        if wanted not in (None, of_arm):
            raise Misuse(
                f"{cell.arm} of {name} is proposal {of_arm}, got #{wanted}. Leave one out."
            )
        wanted = of_arm
    if wanted is None and view.definition.space.phase == "confirmation":
        wanted = 0  # what is confirmed comes before its controls
    if wanted is not None:
        if wanted not in stored:
            raise UnknownName.among(f"proposal of {name}", str(wanted), map(str, stored))
        return wanted, setting.setting.point_name(wanted) or "named"
    winner = winner_of(setting.results)
    shown = winner or closest_of(setting.results)
    if shown is None:
        raise Misuse(
            f"no proposal of {name} has finished, so its tables show none. Name a stored one with "
            f"#PROPOSAL: {', '.join(map(str, stored)) or 'there is none yet'}."
        )
    return shown.number, "closest" if winner is None else "winner"


def _alone(
    definition: Definition, setting: Setting, point: dict[str, Json], seed: int | None
) -> Definition:
    """A sweep of this point alone; its arms have the signatures of the stored ones."""
    space = definition.space
    seeds: Sequence[int] = space.search_seeds if seed is None else (seed,)
    alone = replace(setting, points={AGAIN: point}, ranges={}, n_proposals=None)
    return replace(
        definition,
        space=replace(
            space,
            settings=(alone,),
            ranges={},
            n_proposals=1,
            search_seeds=tuple(seeds),
            sampler="random",
        ),
    )
