"""Shared first columns, notes and number formats of a sweep's tables. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from search_spaces.paper.video import DEPARTURES
from search_spaces.space import SearchSpace
from sweep.render.table import Row
from sweep.results.names import model_text
from trainables.config.arm import ArmConfig, ConstraintConfig
from trainables.config.test_conditions import unseen_gammas
from trainables.plain import Json
from trainables.registry.task_facts import Metric

GAIN = "gain: how much better the constrained network is than plain training, above 0 better"
GAUSSIAN = "gaussian"  # noise alone, among the families of shifts
UNMATCHED = "†"  # beside a setting whose arms differ in what they can fit


def headed(rows: Sequence[Row]) -> list[tuple[str, list[str]]]:
    """The first columns of every table: which setting, what it trains, which pair is shown."""
    return [
        ("setting", [r["setting"] + UNMATCHED * (not r["matched_capacity"]) for r in rows]),
        ("model", [model_text(row["model"], row["model_variant"]) for row in rows]),
        ("pair", [_pair_text(row) for row in rows]),
    ]


def pair_columns(entry: Mapping[str, Json]) -> Row:
    """Which pair a row is of, in CSV: the first columns where a setting has several rows."""
    first = ("setting", "model", "model_variant", "winner", "proposal")
    row: Row = {**{name: entry[name] for name in first}, "n_seeds": len(entry["search_seeds"])}
    return row | split_column(entry)


def split_column(entry: Mapping[str, Json]) -> Row:
    """What was measured on, in CSV, where that is not the dev split."""
    return {"split": entry["split"]} if entry.get("split", "dev") != "dev" else {}


def layer_columns(metric: Metric) -> dict[str, str]:
    """What is measured of every layer, in columns of CSV: the key of an arm's entry for each.

    The metric and a probe's numbers alone where the metric is no function of the losses.
    """
    columns = {"loss": "layer_losses"}
    if metric.higher_is_better:
        columns |= {
            metric.key: "layer_scores",
            "probe_loss": "probe_losses",
            f"probe_{metric.key}": "probe_scores",
        }
    return columns


def reference_notes(metric: Metric) -> list[str]:
    """Which linear filter knows what."""
    if "wiener_train" not in metric.shown:
        return []
    return [
        "Wiener: the best linear filter of a patch, fitted anew at every test gamma, so it knows "
        "the noise; Wiener (train): fitted at train gamma alone, as the models are."
    ]


def model_notes(rows: Sequence[Mapping[str, Json]]) -> list[str]:
    """Which models are not those that the paper describes, and what unmatched capacity means."""
    found = dict.fromkeys((row["model"], row["model_variant"]) for row in rows)
    notes = [f"{DEPARTURES[model]}." for model in found if model in DEPARTURES]
    if not all(row["matched_capacity"] for row in rows):
        notes.append(
            f"{UNMATCHED} unmatched capacity: the unconstrained arm has one dictionary where the "
            "constrained one has one per layer, so the gain is not that of constraining alone."
        )
    return notes


# Columns of CSV that need several search seeds, and those that need a gamma that nothing looked at.
_OF_SEEDS = re.compile(r"_seeds_upper_by_layer$")
_OF_UNSEEN = re.compile(r"(^|_)unseen_(gammas|mean)")


def without_idle(space: SearchSpace, rows: Sequence[Row]) -> list[Row]:
    """Rows without the columns that can hold nothing in this sweep, whatever it comes to.

    The one rule for every CSV: what follows from the definition alone and is empty is left out;
    what says how a sweep went (why, reason, edges) stays, also where nothing happened.
    """
    configs = [space.run(setting, {}, seed=space.search_seeds[0]) for setting in space.settings]
    idle = [] if len(space.search_seeds) > 1 else [_OF_SEEDS]
    idle += [] if any(map(unseen_gammas, configs)) else [_OF_UNSEEN]
    return [
        {name: value for name, value in row.items() if not any(i.search(name) for i in idle)}
        for row in rows
    ]


def seeds_text(space: SearchSpace) -> str:
    """The seeds that every setting is trained on."""
    seeds = ", ".join(map(str, space.search_seeds))
    return f"{space.phase} seed{'s' * (len(space.search_seeds) > 1)} {seeds}"


def config_of(space: SearchSpace, entry: Mapping[str, Json]) -> ArmConfig:
    """The constrained run of an entry; the setting's default one while nothing is finished."""
    if entry["constrained"] is not None:
        return ArmConfig.from_json(entry["constrained"]["config"])
    return space.run(space.setting(entry["setting"]), {}, seed=space.search_seeds[0])


def form_of(constraint: ConstraintConfig | None) -> str:
    """What a reader calls the form of the constraint, detached or not; of a control its setter."""
    if constraint is not None and constraint.is_control:
        return constraint.weights_by.replace("_", " ")
    is_ratio = constraint is not None and constraint.form == "ratio"
    is_detached = constraint is not None and not constraint.grad_through_previous
    return ", ".join(["ratio"] * is_ratio + ["detached"] * is_detached) or "Lagrangian"


def _pair_text(row: Row) -> str:
    if row["proposal"] is None:
        return "none finished"
    text = ["winner" if row["winner"] else "closest, no winner"]
    text += ["vacuous"] * row["vacuous"] + ["at an edge"] * bool(row.get("edges"))
    asked = row.get("demanded_descent")
    text += [f"descent asked {asked:.2f}"] if asked else []
    return ", ".join(text)
