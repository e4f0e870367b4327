"""Plan: the next arm or proposal, from a definition and what happened. Pure.

The answer is a fold over facts (a proposal was stored, an arm is final, a setting was retired) and
depends on their set alone: a restarted driver that replays the stored facts stands where the dead
one stood, but for the arms the dead one had handed out, which come again. No Ray, files or clock.

One order, fixed by the definition: first the unconstrained arms of every setting's search seeds,
then proposal 0 of every setting, proposal 1 of every setting, and so on, seed by seed. What has no
point yet is asked for when its turn comes. Nothing waits for a result, so no worker idles while
work is left.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from search_spaces.space import Setting
from sweep.study.arms import Arm, arms_of_proposal, baselines
from sweep.study.definition import Definition
from trainables.plain import Json

Fits = Callable[[Arm], bool]
# The order of everything: (proposal number or -1 for baselines, setting, seed).
_Key = tuple[int, int, int]


@dataclass(frozen=True)
class Ask:
    """Proposal ``number`` of ``setting`` is wanted: search for it, store it, then tell the plan."""

    setting: str
    number: int


@dataclass
class _SettingState:
    setting: Setting
    order: int
    wanted: int  # proposals
    proposed: set[int] = field(default_factory=set)
    due: set[int] = field(default_factory=set)  # requested, not yet stored
    retired: bool = False


class Plan:
    """The next steps of one sweep. Every signature is handed out once; ``next`` is O(log arms)."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self._settings = {
            s.name: _SettingState(s, i, definition.space.proposals_of(s))
            for i, s in enumerate(definition.space.settings)
        }
        # two heaps; a signature may be in the first more than once, a setting once in the second
        self._arms: list[tuple[_Key, str, Arm]] = []
        self._asks = [(0, state.order, name) for name, state in self._settings.items()]
        self._out: set[str] = set()  # handed out, not given back
        self._final: set[str] = set()
        self._wanted: set[str] = set()  # baselines and the arms of stored proposals
        self._unfinished: set[str] = set()  # wanted and not final
        self.baselines = {name: tuple(baselines(definition, name)) for name in self._settings}
        for name, arms in self.baselines.items():
            self._want(-1, name, arms)

    def add_proposal(self, setting: str, number: int, point: Mapping[str, Json]) -> list[Arm]:
        """Take up a stored proposal; its arms, returned, may be handed out. Idempotent."""
        arms = arms_of_proposal(self.definition, setting, number, point)
        self.add_arms(setting, number, arms)
        return arms

    def add_arms(self, setting: str, number: int, arms: Sequence[Arm]) -> None:
        """Like ``add_proposal``, with the arms of its point."""
        state = self._settings[setting]
        state.due.discard(number)
        if number not in state.proposed:
            state.proposed.add(number)
            self._want(number, setting, arms)

    def arm_is_final(self, signature: str) -> None:
        """Take up that an arm has its outcome; it is never handed out again."""
        self._final.add(signature)
        self._unfinished.discard(signature)

    def retire(self, setting: str) -> None:
        """Ask for no more proposals in this setting; what is stored is still trained."""
        state = self._settings[setting]
        state.retired = True
        state.due.clear()

    def next(self) -> Arm | Ask | None:
        """The next thing to do, or None when there is nothing to hand out right now."""
        ask = self.upcoming()
        if ask is not None:
            self._settings[ask.setting].due.add(ask.number)
            return ask
        if not self._arms:
            return None
        arm = heapq.heappop(self._arms)[2]
        self._out.add(arm.signature)
        return arm

    def next_of(self, signatures: Collection[str]) -> Arm | None:
        """The next of these arms to hand out, whatever comes before; None: none of them waits."""
        arm = next((arm for arm in self.remaining() if arm.signature in signatures), None)
        if arm is not None:
            self._out.add(arm.signature)
        return arm

    def next_fitting(self, fits: Fits) -> Arm | Ask | None:
        """The next arm that fits, whatever comes before; else a proposal that brings one.

        Proposals that depend on no outcome are asked for before their turn; of a setting and seed
        whose unconstrained arm fits, constrained ones are taken to.
        """
        waiting = (entry for entry in self._arms if self._waits(entry[1]) and fits(entry[2]))
        first = min(waiting, key=itemgetter(0), default=None)
        arm = None if first is None else first[2]
        if arm is not None:
            self._out.add(arm.signature)  # its heap entry stays: ``_skip_settled`` drops it
            return arm
        ask = next(self._asks_ahead(fits), None)
        if ask is not None:
            self._settings[ask.setting].due.add(ask.number)
        return ask

    def count_fitting(self, fits: Fits) -> int:
        """The number of arms that ``next_fitting`` would bring, one after the other."""
        waiting = {name for _, name, arm in self._arms if self._waits(name) and fits(arm)}
        return len(waiting) + sum(1 for _ in self._asks_ahead(fits))

    def _asks_ahead(self, fits: Fits) -> Iterator[Ask]:
        ahead = self.definition.space.independent_proposals
        for name, state in self._settings.items():
            draws = self.definition.space.draws_losses(state.setting)  # constrained ones fit nobody
            if not state.retired and not draws and any(map(fits, self.baselines[name])):
                for number in range(min(state.wanted, ahead)):
                    if number not in state.proposed and number not in state.due:
                        yield Ask(name, number)

    def give_back(self, arm: Arm) -> None:
        """Take back an arm that was not trained after all: it comes again, at its place."""
        if arm.signature in self._out and arm.signature not in self._final:
            self._out.discard(arm.signature)
            seed = self.definition.space.search_seeds.index(arm.config.seed)
            self._push(-1 if arm.proposal is None else arm.proposal, arm.setting, seed, arm)

    @property
    def is_done(self) -> bool:
        """True when every wanted arm is final; a retired setting wants no more than is stored."""
        return not self._unfinished and all(
            s.retired or len(s.proposed) >= s.wanted for s in self._settings.values()
        )

    @property
    def is_handed_out(self) -> bool:
        """True when nothing is left to hand out or to ask for, and no requested proposal is due."""
        self._skip_settled()
        return not self._arms and not self._asks and not any(s.due for s in self._settings.values())

    def remaining(self) -> Iterator[Arm]:
        """Known arms that wait to be handed out: each signature once, in order."""
        seen = self._final | self._out
        for _, signature, arm in sorted(self._arms, key=lambda item: item[:2]):
            if signature not in seen:
                seen.add(signature)
                yield arm

    def _waits(self, signature: str) -> bool:
        return signature not in self._out and signature not in self._final

    def upcoming(self) -> Ask | None:
        """The proposal that ``next`` would ask for now; None when it would do something else."""
        self._skip_settled()
        if not self._asks or (self._arms and self._arms[0][0][:2] <= self._asks[0][:2]):
            return None
        number, _, name = self._asks[0]
        return Ask(name, number)

    def is_final(self, signature: str) -> bool:
        """True when this arm has its outcome."""
        return signature in self._final

    @property
    def arms_done(self) -> int:
        """The number of wanted arms that are final."""
        return len(self._wanted) - len(self._unfinished)

    @property
    def arms_total(self) -> int:
        """The number of wanted arms, those of proposals still to come included."""
        to_come = sum(
            max(s.wanted - len(s.proposed), 0) for s in self._settings.values() if not s.retired
        )
        return len(self._wanted) + to_come * len(self.definition.space.search_seeds)

    def _skip_settled(self) -> None:
        while self._arms and (self._arms[0][1] in self._out or self._arms[0][1] in self._final):
            heapq.heappop(self._arms)
        while self._asks:
            number, order, name = self._asks[0]
            state = self._settings[name]
            if state.retired or number >= state.wanted:
                heapq.heappop(self._asks)
            elif number in state.proposed or number in state.due:
                heapq.heapreplace(self._asks, (number + 1, order, name))
            else:
                return

    def _want(self, number: int, setting: str, arms: Sequence[Arm]) -> None:
        for seed, arm in enumerate(arms):
            self._wanted.add(arm.signature)
            if arm.signature not in self._final:
                self._unfinished.add(arm.signature)
                self._push(number, setting, seed, arm)

    def _push(self, number: int, setting: str, seed: int, arm: Arm) -> None:
        key = (number, self._settings[setting].order, seed)
        heapq.heappush(self._arms, (key, arm.signature, arm))
