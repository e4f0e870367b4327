"""A sweep written by hand on data sets that the paper has, and on one that it has not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from search_spaces.space import Setting
from tests.support.sweeps import DIVERGED, FEASIBLE, FIRST, INFEASIBLE, PLAIN, SECOND, SPACE

PED, AVENUE, PHOTOGRAPHS = "ucsd_ped2", "cuhk_avenue", "photographs"


def a_setting(data: str, gamma: float, more: str = "", **fields: Any) -> Setting:
    name = f"{data}-ut-L3-g{gamma:g}{more}"
    return Setting(name, {"data.name": data, "train_gamma": gamma, **fields})


# Two data sets that the paper has and one that it has not; two settings share a place.
DETACHED = {"constraint.grad_through_previous": False}
PAPERS = replace(
    SPACE,
    settings=(
        a_setting(PED, 0.13),
        a_setting(PED, 0.15),
        a_setting(PED, 0.15, "-detached", **DETACHED),
        a_setting(AVENUE, 0.15),
        a_setting(AVENUE, 0.15, "-detached", **DETACHED),
        a_setting(PHOTOGRAPHS, 0.13),
    ),
)
WENT = dict(
    zip(
        (setting.name for setting in PAPERS.settings),
        ([FEASIBLE], [INFEASIBLE], [DIVERGED], [FEASIBLE, FEASIBLE], [PLAIN], [FEASIBLE]),
        strict=True,
    )
)
# The first setting is one that the paper has. Both have a test gamma that is unseen, 0.4.
CONFIRMED = replace(
    SPACE,
    settings=(
        Setting(FIRST, {"train_gamma": 0.15, "data.name": PED}),
        Setting(SECOND, {"train_gamma": 0.1, "data.name": PED}),
    ),
)
