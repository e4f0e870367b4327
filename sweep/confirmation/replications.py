"""Replications of a search: both sides tuned anew, again and again, by a plan.

A replication is three sweeps beside the search NAME that it repeats, each stored as any other:

    NAME.replication-1                    the search, on seeds and with a sampler seed of its own
    NAME.replication-1.tuned_plain        plain training, tuned by as many tries on the same seeds
    NAME.replication-1.confirmation       both winners of each setting on one fresh seed, test split

The unit of the statistics is the replication. None is left out: where a constrained search finds no
winner, its user trains plainly, by the plain side's own network (a gain of 0); where the plain one
finds none, the constant prediction stands for it (docs/decisions/0177).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from search_spaces import catalog
from sweep.confirmation.chosen import (
    Wanted,
    confirmation_name,
    digest_of,
    free_seeds,
    has_ended,
    taken_seeds,
    tuning_name,
    tuning_of,
)
from sweep.confirmation.controls import Fields
from sweep.confirmation.measures import planned_measure
from sweep.confirmation.plan import FIRST_SEED, ReplicationsPlan, families, family_of
from sweep.results.sweep_view import load_sweep
from sweep.study.definition import Definition
from sweep.study.selection import winner_of
from trainables.code_version import code_version
from trainables.errors import Misuse
from trainables.records.objects import ObjectStore

TUNED = "tuned_plain"
FIRST_SEARCH_SEED = 2000  # of replications
FINAL_ARMS = 3  # of a replication in a setting: both winners, and the pair's plain arm


def plan_replications(search: Definition, wanted: Wanted) -> ReplicationsPlan:
    """The plan of so many replications of a search, ``wanted.seeds`` of them."""
    space = catalog.only(search.space, wanted.patterns)
    runs = {one.name: space.run(one, {}, seed=0) for one in space.settings}
    taken, count, each = taken_seeds(space), wanted.seeds, len(space.search_seeds)
    fresh = free_seeds(FIRST_SEED, count, taken | set(wanted.used_seeds))
    used = {*taken, *fresh, *wanted.used_seeds}
    searched = free_seeds(FIRST_SEARCH_SEED, count * each, used)
    plan = ReplicationsPlan(
        name=wanted.name,
        search=search.name,
        settings=(),
        controls=(TUNED,),
        measure=planned_measure(space, wanted.measure),
        design=wanted.design(families({name: family_of(run) for name, run in runs.items()})),
        seeds=fresh,
        until_decided=wanted.until_decided,
        code=code_version(),
        n_proposals=space.n_proposals,
        search_seeds=tuple(searched[each * k : each * (k + 1)] for k in range(count)),
        sampler_seeds=tuple(space.sampler_seed + 1 + k for k in range(count)),
    )
    last = plan.replication(count)
    for name in (tuning_name(last, TUNED), confirmation_name(last)):
        Definition(name, space)  # refuses names that are too long
    return replace(plan, trained=trained_by(search, plan))


def replication_search(search: Definition, plan: ReplicationsPlan, number: int) -> Definition:
    """The search of replication 1, 2, ...: the same space and tries, other seeds."""
    settings = tuple(s for s in search.space.settings if s.name in plan.design.settings)
    space = replace(
        search.space,
        summary=f"{plan.kind} {number} of {search.name}",
        settings=settings,
        n_proposals=plan.n_proposals,
        search_seeds=plan.search_seeds[number - 1],
        sampler_seed=plan.sampler_seeds[number - 1],
    )
    return Definition(plan.replication(number), space, search.mlflow_uri)


def replication_tuning(
    search: Definition, points: Mapping[str, Fields] | None = None
) -> Definition:
    """The search of a replication's plain side; ``points``: of the settings that need one."""
    if points is None:
        points = {setting.name: {} for setting in search.space.settings}
    tuning = tuning_of(search, TUNED, points)
    assert tuning is not None, "it has ranges"
    return tuning


def trained_by(search: Definition, plan: ReplicationsPlan) -> str:
    """12 hex digits of what both sides search, whatever the seeds."""
    first = replication_search(search, plan, 1)
    both = digest_of(first.space) + digest_of(replication_tuning(first).space)
    return hashlib.sha256(both.encode()).hexdigest()[:12]


def refuse_other_search(search: Definition, plan: ReplicationsPlan) -> None:
    """Raise Misuse where the search that is there is no longer the one that was planned for."""
    if trained_by(search, plan) != plan.trained:
        raise Misuse(
            f"{plan.name} is planned for another search than the stored {search.name}: its "
            "settings, ranges or base run differ. Repeat this one with another --name."
        )


def arms_of_a_replication(search: Definition, plan: ReplicationsPlan) -> dict[str, int]:
    """Numbers of arms that one replication trains at most, by their purpose."""
    first = replication_search(search, plan, 1)
    plain = replication_tuning(first).space  # whose unconstrained arms are those of the search
    return {
        "search": catalog.arm_count(first.space),
        TUNED: sum(catalog.constrained_count(plain, one) for one in plain.settings),
        "confirmation": FINAL_ARMS * len(first.space.settings),
    }


def has_winner(objects: ObjectStore, search: str) -> bool | None:
    """True if a stored search found a winner in any setting; None while it goes on."""
    view = load_sweep(objects, search, "outcomes")
    if not has_ended(view):
        return None
    return any(winner_of(one.results) is not None for one in view.settings)
