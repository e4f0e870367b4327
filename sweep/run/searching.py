"""Search of a running sweep: points of proposals, stored before they train."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor

from search_spaces.space import ORDER_FREE, SearchSpace
from sweep.study.arms import Arm, arms_of_proposal
from sweep.study.plan import Ask, Plan
from sweep.study.proposals import (
    Observation,
    Point,
    ProposalOutcome,
    known_of,
    put_proposal,
    put_retired,
)
from sweep.study.sampler import propose
from trainables.records.objects import ObjectStore

_Question = tuple[SearchSpace, str, int, list[Observation], list[Point]]

log = logging.getLogger(__name__)


class Search:
    """Points of a sweep's proposals, and what they came to. An error retires its setting."""

    def __init__(self, objects: ObjectStore, plan: Plan, *, ask_ahead: bool) -> None:
        """Nothing is asked yet; ``ask_ahead``: in a thread, where proposals are slow (GP)."""
        self.objects, self.plan, self.definition = objects, plan, plan.definition
        settings = self.definition.space.settings
        self.points: dict[str, dict[int, Point]] = {s.name: {} for s in settings}
        self.outcomes: dict[str, dict[int, ProposalOutcome]] = {s.name: {} for s in settings}
        self.retired: dict[str, str] = {}
        self._ahead: dict[tuple[str, int], Future[Point]] = {}
        slow = self.definition.space.sampler == "gp"
        self._thread = ThreadPoolExecutor(1, "search") if ask_ahead and slow else None

    def find(self, ask: Ask) -> list[Arm]:
        """Arms of the point that is asked for, stored by then; none where its setting retires."""
        setting, number = ask.setting, ask.number
        try:
            ahead = self._ahead.pop((setting, number), None)
            point = propose(*self._question(ask)) if ahead is None else ahead.result()
            # Built before it is stored: a point that no run accepts must not stay in the store.
            arms = arms_of_proposal(self.definition, setting, number, point)
        except Exception as error:
            log.exception("the search of setting %s failed", setting)
            self.retire(setting, f"the search failed at proposal {number}", error)
            return []
        stored = put_proposal(self.objects, self.definition.name, setting, number, point)
        if stored != point:  # somebody else stored one first: that is the proposal
            arms = arms_of_proposal(self.definition, setting, number, stored)
        self.points[setting][number] = stored
        self.plan.add_arms(setting, number, arms)
        return arms

    def ask_ahead(self) -> None:
        """When the next thing is a slow ask, start it now, with what is known now."""
        if self._thread is None:
            return
        ask = self.plan.upcoming()
        if ask is None or (ask.setting, ask.number) in self._ahead:
            return
        self._ahead[ask.setting, ask.number] = self._thread.submit(propose, *self._question(ask))

    def retire(self, setting: str, what: str, error: Exception) -> None:
        """No more proposals of this setting in this run; ``what`` was tried when it broke."""
        self.retired[setting] = f"{what}: {type(error).__name__}: {error}"
        self.plan.retire(setting)
        put_retired(self.objects, self.definition.name, self.retired)

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    def _question(self, ask: Ask) -> _Question:
        space, setting = self.definition.space, ask.setting
        is_free = space.sampler in ORDER_FREE  # nothing is looked at then, and building it costs
        known = ([], []) if is_free else known_of(self.points[setting], self.outcomes[setting])
        return space, setting, ask.number, *known
