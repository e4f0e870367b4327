"""Table of layers: losses, missing shares and probes of both arms. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from search_spaces.space import SearchSpace
from sweep.render.table import Row, Table, number
from sweep.results.aggregates import ARMS
from sweep.results.names import model_text
from sweep.results.tables.columns import layer_columns, pair_columns
from trainables.plain import Json
from trainables.registry.task_facts import Metric


def layers_table(space: SearchSpace, entries: Sequence[Mapping[str, Json]]) -> Table:
    """Every layer of both arms of every setting's winner or closest pair, held out, at train gamma.

    Layer 0 is what enters the first layer: the input in denoising, the embedding in text. A loss is
    that of the layer's prediction by the readout that all layers share, which the unconstrained arm
    trains on the last layer alone; a probe's is that of a readout fitted to this layer.
    """
    facts = space.base.facts
    rows = [row for entry in entries for row in _rows(facts.metric, entry)]
    quantities = [("loss", "loss", ".3f"), ("missing share", "missing_share", "+.2f")]
    if any(row.get("constrained_probe_loss") is not None for row in rows):
        quantities.insert(1, ("probe's loss", "probe_loss", ".3f"))
    shown = [
        ("setting", [row["setting"] for row in rows]),
        ("model", [model_text(row["model"], row["model_variant"]) for row in rows]),
        ("layer", [str(row["layer"]) for row in rows]),
        *(
            (f"{header}: {arm}", [number(row[f"{arm}_{column}"], form) for row in rows])
            for header, column, form in quantities
            for arm in ARMS
        ),
    ]
    notes = [
        f"means over the {space.phase} seeds on {space.base.measured_on} {facts.samples} at train "
        "gamma; losses in the task's own unit; missing share: of those "
        "means, or of the median seed where that misses more.",
        "The unconstrained arm never trains its readout on inner layers: where there are probes, "
        "they say what its inner layers hold.",
    ]
    return Table("layers", "Both arms, layer by layer", rows, shown, notes, texts=3, headed=2)


def _rows(metric: Metric, entry: Mapping[str, Json]) -> list[Row]:
    arms = {arm: entry[arm] or {} for arm in ARMS}
    depth = max((len(values.get("layer_losses") or []) for values in arms.values()), default=0)
    columns = layer_columns(metric)
    return [
        {
            **pair_columns(entry),
            "layer": layer,
            **{
                f"{arm}_{column}": _at(values.get(key), layer)
                for arm, values in arms.items()
                for column, key in columns.items()
            },
            **{
                f"{arm}_missing_share": _at(
                    values.get("missing_share"), layer - (values.get("first_layer") or 0)
                )
                for arm, values in arms.items()
            },
        }
        for layer in range(depth)
    ]


def _at(values: Sequence[float] | None, place: int) -> float | None:
    return values[place] if values and 0 <= place < len(values) else None
