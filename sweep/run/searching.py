"""Search of a running sweep: points of proposals, stored before they train."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from search_spaces.space import ORDER_FREE
from sweep.study.arms import Arm, arms_of_proposal
from sweep.study.plan import Ask, Plan
from sweep.study.proposals import Point, ProposalOutcome, known_of, put_proposal, put_retired
from sweep.study.sampler import propose
from trainables.records.objects import ObjectStore

log = logging.getLogger(__name__)


class Search:
    """Points and outcomes of a sweep's proposals. An error retires its setting."""

    def __init__(self, objects: ObjectStore, plan: Plan, *, ask_ahead: bool) -> None:
        """Start empty; ``ask_ahead`` prepares the next proposal in a thread where they are slow."""
        self.objects, self.plan, self.definition = objects, plan, plan.definition
        settings = self.definition.space.settings
        self.points: dict[str, dict[int, Point]] = {s.name: {} for s in settings}
        self.outcomes: dict[str, dict[int, ProposalOutcome]] = {s.name: {} for s in settings}
        self.retired: dict[str, str] = {}
        self._ahead: dict[tuple[str, int], Future[Point]] = {}
        slow = self.definition.space.sampler == "gp"
        self._thread = ThreadPoolExecutor(1, "search") if ask_ahead and slow else None

    @property
    def judged(self) -> list[ProposalOutcome]:
        """Outcomes of all judged proposals; a copy, since threads that read call this, too."""
        return [o for some in list(self.outcomes.values()) for o in list(some.values())]

    def add_proposal(self, ask: Ask) -> list[Arm]:
        """Search for the proposal and store it; its arms, or none where its setting retires."""
        setting, number = ask.setting, ask.number
        try:
            ahead = self._ahead.pop((setting, number), None)
            point = self._bind_propose(ask)() if ahead is None else ahead.result()
            # Built before it is stored: a point that no run accepts must not stay in the store.
            arms = arms_of_proposal(self.definition, setting, number, point)
        # Samplers and plug-ins may raise anything: one setting ends, the others go on.
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
        """Start the next proposal in the thread, if it is next, with what is known by now."""
        if self._thread is None:
            return
        ask = self.plan.upcoming()
        if ask is None or (ask.setting, ask.number) in self._ahead:
            return
        self._ahead[ask.setting, ask.number] = self._thread.submit(self._bind_propose(ask))

    def retire(self, setting: str, what: str, error: Exception) -> None:
        """End the search of a setting for this run; ``what`` was tried when it broke."""
        self.retired[setting] = f"{what}: {type(error).__name__}: {error}"
        self.plan.retire(setting)
        put_retired(self.objects, self.definition.name, self.retired)

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    def _bind_propose(self, ask: Ask) -> Callable[[], Point]:
        """Bind ``propose`` to what is known now; a thread must not read it later, as it changes."""
        space, setting = self.definition.space, ask.setting
        is_free = space.sampler in ORDER_FREE  # it reads none of them, and building them costs
        known = ([], []) if is_free else known_of(self.points[setting], self.outcomes[setting])
        return partial(propose, space, setting, ask.number, *known)
