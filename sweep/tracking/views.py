"""Saved views of MLflow's experiment page: which runs, charts and columns. Pure.

The format is MLflow's own and not documented: an experiment's tag holds a view as JSON. A version
that does not know it shows its default page. tests/sweep/tracking/test_pages_in_browser.py looks
at each view in a browser.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, urlencode

from search_spaces.space import SearchSpace
from sweep.tracking.marks import IN_PAIR, OF_PROPOSAL, VERDICT
from sweep.tracking.rows import OBJECTIVE_GAIN
from trainables.plain import Json
from trainables.records.arm_record import (
    DESCENT_CURVE,
    GAMMA_AXIS,
    LARGEST_MULTIPLIER,
    LAYER_AXIS,
    MEAN_OVER_GAMMAS,
    MISSING_SHARE_CURVE,
    MULTIPLIER_CURVE,
    OBJECTIVE,
    OOD_CURVE,
    OOD_CURVE_GAIN,
    PLAIN_MISSING_SHARE_CURVE,
    REPORTED_MISSING_SHARE,
    SEEN_MEAN,
    TRAIN_LOSS,
    UNSEEN_MEAN,
    WORST_MISSING_SHARE,
)

TAG = "mlflow.sharedViewState."  # and the view's id
# Drawn at once: five pairs. More are in the list, each with a switch.
DRAWN, DRAWN_MODE = 10, "FIRST_10_RUNS"
MANY = 100  # points of a scatter, bars
RUN_NAME = "attributes.`Run Name`"  # a column
LONG = {"tags.`setting`": 230, f"tags.`{VERDICT}`": 150}  # pixels: their values are long
ARMS = "tags.kind = 'arm'"
Chart = dict[str, Json]


@dataclass(frozen=True)
class View:
    """One saved view."""

    key: str  # in its address
    name: str  # in the menu
    state: Mapping[str, Json]
    mode: Literal["CHART", "TABLE"] = "CHART"

    @property
    def tag(self) -> str:
        """Name of the experiment's tag that holds it."""
        return TAG + self.key

    def text(self, at_ms: int) -> str:
        """Value of that tag, of a view that was made at this time."""
        about = {"name": self.name, "createdAt": at_ms, "updatedAt": at_ms}
        return json.dumps({**about, "state": json.dumps(self.state)})

    def address(self, experiment_id: str) -> str:
        """Where it opens, behind the server's address."""
        query = {"viewStateShareKey": self.key, "compareRunsMode": self.mode, **MODEL_TRAINING}
        return f"#/experiments/{experiment_id}/runs?{urlencode(query, quote_via=quote)}"


MODEL_TRAINING = {"workflowType": "machine_learning"}  # of an address: else the page is of GenAI


def views(searched: Sequence[str]) -> tuple[View, ...]:
    """The views of a sweep over these fields; the first is what `sweep ui` opens."""
    columns = [
        *(f"tags.`{name}`" for name in ("setting", VERDICT)),
        *(f"metrics.`{n}`" for n in (OBJECTIVE_GAIN, WORST_MISSING_SHARE, OBJECTIVE)),
        "tags.`certificate`",
        *(f"metrics.`{name}`" for name in (UNSEEN_MEAN, SEEN_MEAN, MEAN_OVER_GAMMAS)),
        *(f"params.`{name}`" for name in searched),
        *(f"tags.`{name}`" for name in (OF_PROPOSAL, "proposal", "arm")),
    ]
    in_pair = f"{ARMS} AND tags.{IN_PAIR} = 'yes'"
    pairs = _state(in_pair, "tags.`setting`", columns, _pair_sections())
    by = [{"mode": "tag", "groupByData": name} for name in ("setting", "arm")]
    grouped = {"groupBy": {"aggregateFunction": "average", "groupByKeys": by}}
    best = f"metrics.`{OBJECTIVE}`"
    return (
        View("winner-pairs", "Winner pairs", pairs),
        View("seeds", "Winner pairs, mean and range over seeds", {**pairs, **grouped}),
        View("all-arms", "All arms", _state(ARMS, best, columns, _search_sections(searched))),
        View(
            "feasible-proposals",
            "Feasible proposals",
            _state(f"{ARMS} AND tags.{OF_PROPOSAL} = 'feasible'", best, columns, {}),
            "TABLE",
        ),
    )


def _pair_sections() -> dict[str, list[Chart]]:
    return {
        "Loss by layer; robustness": [
            _line(DESCENT_CURVE, LAYER_AXIS),
            _line(OOD_CURVE, GAMMA_AXIS),
            _line(OOD_CURVE_GAIN, GAMMA_AXIS),
        ],
        "Missing share, multiplier": [
            _line(MISSING_SHARE_CURVE, LAYER_AXIS),
            _line(PLAIN_MISSING_SHARE_CURVE, LAYER_AXIS),
            _line(MULTIPLIER_CURVE, LAYER_AXIS),
        ],
        "Verdict": [_bar(WORST_MISSING_SHARE), _bar(SEEN_MEAN), _bar(UNSEEN_MEAN)],
        "Training, by step": [
            _line(TRAIN_LOSS),
            _line(REPORTED_MISSING_SHARE),
            _line(LARGEST_MULTIPLIER),
        ],
    }


def _search_sections(searched: Sequence[str]) -> dict[str, list[Chart]]:
    chart = {
        "selectedParams": list(searched), "selectedMetrics": [WORST_MISSING_SHARE, OBJECTIVE],
        "showAllRuns": True,
    }  # fmt: skip
    return {
        "Searched values; objective": [
            _card("PARALLEL", OBJECTIVE, **chart),
            _scatter(WORST_MISSING_SHARE, OBJECTIVE),
        ],
        "Seen, unseen; gain": [
            _scatter(SEEN_MEAN, UNSEEN_MEAN),
            _bar(OBJECTIVE_GAIN),
        ],
    }


def _state(
    search: str, order: str, columns: Sequence[str], sections: Mapping[str, Sequence[Chart]]
) -> dict[str, Json]:
    fixed = {"display": True, "isReordered": True, "deleted": False, "isGenerated": False}
    return {
        "searchFilter": search,
        "orderByKey": order,
        "orderByAsc": True,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": list(columns),
        "columnOrder": list(columns),
        "columnWidths": {RUN_NAME: 220, **{name: _width(name) for name in columns}, **LONG},
        "runsHidden": [],
        "runsHiddenMode": DRAWN_MODE,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "isAccordionReordered": True,  # else sections are sorted by name
        "compareRunSections": [{"uuid": name, "name": name, **fixed} for name in sections],
        "compareRunCharts": [
            {**chart, "uuid": f"{name[:8]} {number}", "metricSectionId": name}
            for name, charts in sections.items()
            for number, chart in enumerate(charts)
        ],
    }


def _width(column: str) -> int:
    """Pixels that show a column's name, but for its start where it is long."""
    return min(max(90, 8 * (len(column.partition(".")[2]) + 1)), 190)


def _card(kind: str, metric: str, **more: Json) -> Chart:
    fixed = {"runsCountToCompare": DRAWN, "deleted": False, "isGenerated": False}
    return {"type": kind, "metricKey": metric, **fixed, **more}


def _line(metric: str, over: str = "") -> Chart:
    """A metric over the steps of training, or over another one of the same steps."""
    plain = {"scaleType": "linear", "xAxisScaleType": "linear", "lineSmoothness": 0}
    axis = {"xAxisKey": "metric", "selectedXAxisMetricKey": over} if over else {"xAxisKey": "step"}
    own = {"selectedMetricKeys": [metric], "useGlobalXaxisKey": False}
    return _card("LINE", metric, **own, **axis, **plain)


def _bar(metric: str) -> Chart:
    return _card("BAR", metric)


def _scatter(x: str, y: str) -> Chart:
    axes = {"xaxis": {"key": x, "type": "METRIC"}, "yaxis": {"key": y, "type": "METRIC"}}
    return _card("SCATTER", y, **{"runsCountToCompare": MANY, **axes})


def searched_fields(space: SearchSpace) -> list[str]:
    """Fields that a sweep searches or lists points of, in the order of its definition."""
    listed = [n for s in space.settings for point in s.points.values() for n in point]
    return list(dict.fromkeys([*space.ranges, *listed]))
