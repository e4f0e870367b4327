"""Exported answers: both arms side by side, and a list as AlpacaEval reads it."""

from __future__ import annotations

import json
from dataclasses import replace

from sweep.results.sweep_view import SweepView, load_sweep
from sweep.results.tables.answers import answer_files
from tests.support.sweeps import FEASIBLE, FIRST, SECOND, store_sweep
from trainables.records.arm_record import ArmRecord
from trainables.records.evaluation import Answer
from trainables.records.objects import ObjectStore


def answered(record: ArmRecord | None, *written: str) -> None:
    assert record is not None
    assert record.evaluation is not None
    answers = [
        Answer(prompt="Name\na river.", reference="The Nile.", gamma=gamma, written=text)
        for gamma, text in zip((0.0, 0.25), written, strict=True)
    ]
    record.evaluation = replace(record.evaluation, answers=answers)


def viewed(objects: ObjectStore) -> SweepView:
    store_sweep(objects, {FIRST: [FEASIBLE], SECOND: [FEASIBLE]})
    return load_sweep(objects, "tiny")


def test_arms_that_wrote_nothing_have_no_files(objects: ObjectStore) -> None:
    assert answer_files(viewed(objects)) == {}


def test_both_arms_stand_side_by_side(objects: ObjectStore) -> None:
    view = viewed(objects)
    shown = view.settings[0].chosen.shown
    assert shown is not None
    answered(shown.pairs[0].constrained, "The Nile", "the the")
    answered(shown.pairs[0].unconstrained, "A river.\n\nIt is long.", "")
    files = answer_files(view)
    assert set(files) == {"answers.md"} | {
        f"answers/{FIRST}/{arm}-g{gamma}.json"
        for arm in ("constrained", "unconstrained")
        for gamma in ("0", "0.25")
    }
    page = files["answers.md"]
    assert f"## {FIRST}" in page
    assert SECOND not in page
    assert (
        "### `Name a river.` (gamma 0.25)\n\n* data: `The Nile.`\n* constrained: `the the`\n"
        "* unconstrained: (nothing)"
    ) in page
    assert "* unconstrained: `A river. It is long.`" in page
    (row,) = json.loads(files[f"answers/{FIRST}/unconstrained-g0.json"])
    assert row == {
        "instruction": "Name\na river.",
        "output": "A river.\n\nIt is long.",
        "generator": f"{FIRST} unconstrained-g0",
        "dataset": "photographs",
    }


def test_what_a_network_wrote_is_text_of_the_page(objects: ObjectStore) -> None:
    view = viewed(objects)
    shown = view.settings[0].chosen.shown
    assert shown is not None
    hostile = "<script>alert(1)</script> ![x](http://a) `a|b` **c** _d_ &lt; ~~e~~ https://f @g $h$"
    answered(shown.pairs[0].constrained, hostile, "")
    files = answer_files(view)
    page = files["answers.md"]
    assert f"* constrained: `` {hostile} ``" in page  # code: not even a link that is bare
    (row,) = json.loads(files[f"answers/{FIRST}/constrained-g0.json"])
    assert row["output"] == hostile  # AlpacaEval's own fields are as they were
