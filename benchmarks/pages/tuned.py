"""The part of docs/shifts.md on replications, both sides tuned, from results/confirmed.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from benchmarks.confirmed.imdb_shifts import SPACE as REVIEWS
from benchmarks.pages.made import number, results, span, table
from search_spaces.space import Uniform
from sweep.statistics.paired import t_interval
from trainables.config.test_conditions import family_of
from trainables.plain import Json

# By key of the results: what the page calls the data, and by what a gain is multiplied there.
SEARCHES = {
    "ped2_shifts": ("UT, UCSD Ped2", 1.0, "grey levels"),
    "imdb_shifts": ("UT, IMDb", 100.0, "points of accuracy"),
}
FORMS = {True: "detached", False: "Lagrangian"}


def tuned_table() -> str:
    """A row for each setting: replications, those without a winner, gain, outcome."""
    rows = []
    for name, (called, times, unit) in SEARCHES.items():
        for setting in _of(name)["settings"]:
            form = FORMS[setting["name"].endswith("-detached")]
            low, high = (number(times * setting["units"][end], 2) for end in ("low", "high"))
            rows.append(
                [
                    f"{called}, {form}",
                    str(setting["replications"]),
                    str(setting["no_winner"]["constrained"]),
                    f"{span(_scaled(setting, times), 2)} {unit}",
                    f"{low} to {high}",
                    str(setting["marked"]),
                ]
            )
    return table(
        [
            "setting",
            "replications",
            "without a constrained winner",
            "gain (95 % interval)",
            "test clips or reviews drawn, too",
            "outcome",
        ],
        rows,
    )


def tuned_facts() -> Iterator[str]:
    """The phrases of the page that have numbers."""
    ped2, imdb = (_of(name) for name in SEARCHES)
    for name, of in zip(SEARCHES, (ped2, imdb), strict=True):
        yield f"{name} --replications {of['replications']['complete']}"
    tries, fewer = (of["replications"]["n_proposals"] for of in (ped2, imdb))
    yield f"({tries} tries a form on Ped2, {fewer} on IMDb)"
    yield f"{tries} or {fewer} tries on the same seed"
    yield f"with a probability of {100 * ped2['design']['error']:g} %."
    yield from _outcomes(ped2, imdb)
    kept = [of["settings"][0]["units"] for of in (ped2, imdb)]
    trained = imdb["settings"][0]["certified"]["trained"]
    yield f"none of {trained} is certified feasible on {kept[1]['units']:,} reviews"
    yield f"{kept[0]['groups']} clips of Ped2"
    yield from _how_ranges_came_about()
    severities = {shift: len(family_of(shift).severities) for shift in REVIEWS.base.shifts}
    assert 3 * severities["token_swap"] == sum(severities.values())
    yield f"third of the {sum(severities.values())} conditions"


def _outcomes(ped2: Json, imdb: Json) -> Iterator[str]:
    assert {one["marked"] for one in ped2["settings"]} == {"undecided"}
    (form,) = imdb["settings"]
    assert form["marked"] == "equivalent"
    (family,) = ped2["families"]
    yield f"{span(family, 2)} grey levels over both forms"
    smallest = ped2["design"]["smallest_effect"]
    assert max(-family["low"], family["high"]) > smallest
    yield f"past {smallest:g} grey levels"
    yield f"{span(_scaled(form, 100), 2)} points of accuracy over replications"
    low, high = (number(100 * form["units"][end], 2) for end in ("low", "high"))
    yield f"{low} to {high} when reviews are drawn, too"
    yield f"Equivalent means within {100 * imdb['design']['smallest_effect']:g} point."
    settings = (*ped2["settings"], form)
    assert {one["no_winner"]["constrained"] for one in settings} == {1}
    assert not any(one["no_winner"]["tuned_plain"] for one in settings)
    without = [
        _interval([gain for gain in one["per_replication"].values() if gain], times)
        for one, times in zip(settings, (1, 1, 100), strict=True)
    ]
    yield f"{without[2]} points on IMDb, and {without[0]} and {without[1]} grey levels on Ped2"


def _how_ranges_came_about() -> Iterator[str]:
    """Numbers of the pilots, whose arms are not kept, and of the space that came of them."""
    alphas = REVIEWS.ranges["constraint.alpha"]
    assert isinstance(alphas, Uniform)
    steps = REVIEWS.settings[0].fields["steps"]
    yield "On seed 0 and dev"
    yield "from 0.02 to 0.2 at 800 steps"
    yield f"from 0.03 to 0.08 at {steps} steps"
    yield f"{alphas.low:g} to {alphas.high:g}, and the first try 0.05"
    assert REVIEWS.settings[0].fields["constraint.alpha"] == 0.05


def _interval(gains: Sequence[float], times: float) -> str:
    ends = t_interval(times * np.array(gains))
    return " to ".join(number(float(end), 2) for end in ends)


def _of(name: str) -> Json:
    return results("confirmed")[f"{name}.replications"]["tuned"]


def _scaled(setting: Mapping[str, Json], times: float) -> dict[str, float]:
    return {end: times * setting[end] for end in ("mean", "low", "high")}
