"""A sweep written by hand into a store: two settings, two search seeds, nothing trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from search_spaces.space import SearchSpace, Setting, Uniform
from sweep.study.definition import Definition, put_definition
from sweep.study.pairs import ProposalResult, join
from sweep.study.proposals import ProposalOutcome, put_judged, put_proposal
from tests.support.records import SCORES, ended, finished, pair_config
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

# Losses of layers 0..3 at alpha 0.2 and f0 = f_c = 1; the identity's loss is 0.5.
FEASIBLE = [0.5, 0.4, 0.3, 0.2]
INFEASIBLE = [0.5, 0.4, 0.4, 0.2]  # layer 2 misses all that was asked of it
USELESS = [2.0, 1.0, 0.8, 0.6]  # every layer descends, to above the unchanged input's loss
PLAIN = [0.5, 0.6, 0.7, 0.25]  # what plain training comes to
DIVERGED = "diverged"

ENVIRONMENT = {
    "commit": "abc123",
    "dirty": False,
    "python": "3.11.4",
    "packages": {"torch": "2.13.0"},
}
SPACE = SearchSpace(
    name="tiny",
    summary="two settings by hand",
    base=replace(pair_config(), data=replace(pair_config().data, fingerprint="f00d")),
    settings=(
        Setting("shallow_ut-L3-g0.15", {"train_gamma": 0.15}),
        Setting("shallow_ut-L3-g0.2", {"train_gamma": 0.2}),
    ),
    ranges={"constraint.alpha": Uniform(0.2, 0.3)},
    n_proposals=3,
    search_seeds=(0, 1),
    sampler="random",
)
FIRST, SECOND = (s.name for s in SPACE.settings)
Losses = list[float] | str  # or how the arm ended instead


def point(number: int) -> dict[str, float]:
    """Proposals differ by too little to change a verdict."""
    return {"constraint.alpha": 0.2 + 0.0001 * number}


def store_sweep(
    objects: ObjectStore,
    proposals: Mapping[str, list[Losses]],
    *,
    name: str = "tiny",
    space: SearchSpace = SPACE,
    objectives: Mapping[tuple[str, int], float] | None = None,
) -> Definition:
    """Store a sweep whose proposal k of a setting came to ``proposals[setting][k]`` on every seed.

    A setting that is left out was never started; its unconstrained arms have no record either.
    """
    definition = put_definition(objects, Definition(name, space))
    store = ArmStore(objects)
    for setting_name, losses in proposals.items():
        setting = space.setting(setting_name)
        plain = []
        for seed in space.search_seeds:
            config = space.run(setting, {}, seed=seed).unconstrained()
            plain.append(store.put_record(_in_environment(finished(config, PLAIN, objective=-0.1))))
        outcomes: dict[int, ProposalOutcome] = {}
        for number, came_to in enumerate(losses):
            put_proposal(objects, name, setting_name, number, point(number))
            pairs = []
            for seed, baseline in zip(space.search_seeds, plain, strict=True):
                config = space.run(setting, point(number), seed=seed)
                objective = (objectives or {}).get((setting_name, number), -0.2) + 0.01 * seed
                if isinstance(came_to, str):
                    record = ended(config, came_to, f"the loss is nan at step {10 * number}.")
                else:
                    scores = {g: s + seed - 0.5 for g, s in SCORES.items()}
                    record = finished(config, came_to, objective=objective, scores=scores)
                pairs.append(join(store.put_record(_in_environment(record)), baseline))
            result = ProposalResult(number, dict(point(number)), tuple(pairs))
            outcomes[number] = ProposalOutcome.from_result(result)
        put_judged(objects, name, setting_name, {n: dict(point(n)) for n in outcomes}, outcomes)
    return definition


def _in_environment(record: ArmRecord) -> ArmRecord:
    return replace(record, environment=dict(ENVIRONMENT))
