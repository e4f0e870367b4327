"""Winners' weights stay, whichever sweep they won in; the rest go, the records never."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from search_spaces.space import SearchSpace, Setting
from sweep.definition import Definition, put_definition
from sweep.proposals import put_proposal
from sweep.retention import keep_winners_weights
from sweep.views import load_sweep
from tests.records import finished, pair_config
from trainables.object_store import ObjectStore
from trainables.run_store import RunStore

FEASIBLE, INFEASIBLE = [0.5, 0.4, 0.3, 0.2], [0.5, 0.4, 0.4, 0.4]


def test_only_the_winners_weights_stay(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    store = RunStore(objects)
    space = SearchSpace(
        name="tiny",
        summary="",
        base=pair_config(),
        settings=(Setting("only", {}),),
        search_seeds=(0,),
    )
    losses = {0.2: FEASIBLE, 0.3: INFEASIBLE}
    signatures = {}
    for sweep, alphas in (("one", (0.2, 0.3)), ("two", (0.3,))):
        put_definition(objects, Definition(sweep, replace(space, n_proposals=len(alphas))))
        for number, alpha in enumerate(alphas):
            put_proposal(objects, sweep, "only", number, {"constraint.alpha": alpha})
            config = pair_config(alpha=alpha)
            signatures[alpha] = config.signature()
            store.put_record(finished(config, losses[alpha]))
            store.put_weights(config.signature(), b"weights")
    plain = pair_config().unconstrained()
    store.put_record(finished(plain, INFEASIBLE))
    store.put_weights(plain.signature(), b"weights")

    assert keep_winners_weights(objects, load_sweep(objects, "one")) == 1
    assert store.weights(signatures[0.2]) == b"weights"
    assert store.weights(signatures[0.3]) is None
    assert store.weights(plain.signature()) == b"weights"
    # the second sweep has no winner; what the first keeps stays
    keep_winners_weights(objects, load_sweep(objects, "two"))
    assert store.weights(plain.signature()) == b"weights"
    assert store.record(signatures[0.3]) is not None
