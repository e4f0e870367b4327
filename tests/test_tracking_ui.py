"""Where to look at a tracked sweep: the address of its charts, and the server that shows them."""

from __future__ import annotations

import pytest

from sweep.tracking import Tracker
from sweep.tracking_place import TrackingError
from sweep.tracking_ui import experiment_url, ui_command
from tests.tracked_arms import SWEEP, history
from trainables.errors import Misuse


def test_the_url_shows_arms_as_charts_sorted_by_objective(uri: str) -> None:
    Tracker(uri).sync(history(1)[0][-1])
    url = experiment_url("http://127.0.0.1:5000/", uri, SWEEP)
    assert url.startswith("http://127.0.0.1:5000/#/experiments/1/runs?searchFilter=tags.kind%20%3D")
    assert "orderByKey=metrics.%60ood%2Fobjective%60&orderByAsc=true&compareRunsMode=CHART" in url
    with pytest.raises(TrackingError, match="sweep sync other"):
        experiment_url("http://127.0.0.1:5000/", uri, "other")


def test_a_server_is_its_own_ui() -> None:
    with pytest.raises(Misuse, match="open it in a browser"):
        ui_command("http://host:5000", None, 5001)
