"""The part of docs/shifts.md on replications, both sides tuned, from results/confirmed.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.pages.made import results, span, table
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
            rows.append(
                [
                    f"{called}, {form}",
                    str(setting["replications"]),
                    str(setting["no_winner"]["constrained"]),
                    f"{span(_scaled(setting, times), 2)} {unit}",
                    str(setting["marked"]),
                ]
            )
    head = ["setting", "replications", "without a winner", "gain (95 % interval)", "outcome"]
    return table(head, rows)


def tuned_facts() -> Iterator[str]:
    """The phrases of the page that have numbers."""
    ped2, imdb = (_of(name) for name in SEARCHES)
    for name, of in zip(SEARCHES, (ped2, imdb), strict=True):
        yield f"{name} --replications {of['replications']['complete']}"
    assert {one["marked"] for one in ped2["settings"]} == {"undecided"}
    assert {one["marked"] for one in imdb["settings"]} == {"equivalent"}
    tries, fewer = (of["replications"]["n_proposals"] for of in (ped2, imdb))
    yield f"{tries} tries a form on Ped2, {fewer} on IMDb"
    (family,) = ped2["families"]
    yield f"{span(family, 2)} grey levels over both forms"
    yield f"{ped2['design']['smallest_effect']:g} grey levels"
    (form,) = imdb["settings"]
    yield f"{span(_scaled(form, 100), 2)} points of accuracy"
    yield f"where equivalent is within {100 * imdb['design']['smallest_effect']:g} point"
    none = {one["no_winner"]["constrained"] for one in (*ped2["settings"], form)}
    assert none == {1}
    certified = [one["certified"] for one in (*ped2["settings"], form)]
    assert not any(one["feasible"] for one in certified)
    kept = [of["units"]["units"] for of in (ped2["settings"][0], form)]
    yield f"{kept[0]} windows of {ped2['settings'][0]['units']['groups']} clips"
    yield f"{kept[1]:,} reviews"


def _of(name: str) -> Json:
    return results("confirmed")[f"{name}.replications"]["tuned"]


def _scaled(setting: Mapping[str, Json], times: float) -> dict[str, float]:
    return {end: times * setting[end] for end in ("mean", "low", "high")}
