"""Many settings on one screen: `best` and `status` of a sweep of 45, whole by --only or --full."""

from __future__ import annotations

from dataclasses import replace

import pytest

from search_spaces.space import Setting
from tests.support.command_line import refused, sweep
from tests.support.sweeps import DIVERGED, FEASIBLE, INFEASIBLE, SPACE, store_sweep
from trainables.records.objects import ObjectStore

MANY = tuple(Setting(f"shallow_ut-L3-g{i:02d}", {"train_gamma": 0.01 * i}) for i in range(1, 46))
FIRST = MANY[0].name


@pytest.fixture
def many(stored: ObjectStore) -> ObjectStore:
    space = replace(SPACE, settings=MANY, search_seeds=(0,))
    came_to = [INFEASIBLE, FEASIBLE, DIVERGED]
    store_sweep(stored, {s.name: list(came_to) for s in MANY[:12]}, name="many", space=space)
    return stored


@pytest.mark.parametrize("width", ["80", "200"])
@pytest.mark.parametrize("verb", ["best", "status"])
def test_45_settings_take_one_screen(
    many: ObjectStore, monkeypatch: pytest.MonkeyPatch, verb: str, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    lines = sweep(verb, "many").stdout.splitlines()
    assert len(lines) <= 48
    assert "33 " in "\n".join(lines)  # of the others their number alone
    assert not any(line.startswith("   ") for line in lines)  # no row goes on in a second line


def test_only_and_full_show_settings_whole(many: ObjectStore) -> None:
    whole = sweep("best", "many", "--only", FIRST).stdout
    assert "alpha 0.2" in whole
    assert "g02" not in whole
    assert sweep("best", "many", "--full").stdout.count("no proposal has finished") == 33
    assert len(sweep("status", "many", "--full").stdout.splitlines()) > 45
    assert "unknown setting of many" in refused("best", "many", "--only", "nothing")
