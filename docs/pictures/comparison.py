"""Picture of a sweep in MLflow: charts of a saved view, as Chromium shows them.

    python docs/pictures/comparison.py STORAGE docs/pictures/mlflow.png

Of the sweep `quickstart`. The view (layer losses, missing share and mean RMSE of plain training and
of the feasible arms) is saved in the sweep's experiment, so give the storage root of a sweep that
was made for the picture.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from PIL import Image

from trainables.records.arm_record import DESCENT_CURVE, OOD_MEAN, WORST_MISSING_SHARE

SHARE = "comparison"  # the view's id, in the address
FILTER = "tags.kind = 'arm' AND tags.outcome != 'infeasible'"
SIZE = (1900, 780)
CROP = (216, 240, 1384, 706)  # without the menu at the left and the assistant at the right
# A screen with a mouse: else every card shows its tools.
MOUSE = "primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4"
PLAIN_COLOUR, COLOURS = "#444444", ("#1b6ac9", "#e07b00", "#2a9d4b", "#9b4fc4")
RUNS_SHOWN = 10


def chart(kind: str, metric: str, **more: Any) -> dict[str, Any]:
    """One card of MLflow's chart view, in MLflow's own terms."""
    card = {"uuid": metric, "type": kind, "metricSectionId": "pair", "metricKey": metric}
    fixed = {"runsCountToCompare": RUNS_SHOWN, "deleted": False, "isGenerated": False}
    return card | fixed | more


def view() -> dict[str, Any]:
    """The state of MLflow's experiment page with these three charts."""
    line = {"selectedMetricKeys": [DESCENT_CURVE], "xAxisKey": "step", "lineSmoothness": 0}
    section = {"uuid": "pair", "name": "Constrained beside plain training", "display": True}
    return {
        "searchFilter": FILTER,
        "orderByKey": f"metrics.`{OOD_MEAN}`",
        "orderByAsc": True,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": [],
        "runsHidden": [],
        "runsHiddenMode": "SHOW_ALL",
        "compareRunSections": [
            section | {"isReordered": True, "deleted": False, "isGenerated": False}
        ],
        "compareRunCharts": [
            chart("LINE", DESCENT_CURVE, scaleType="linear", xAxisScaleType="linear", **line),
            chart("BAR", WORST_MISSING_SHARE),
            chart("BAR", OOD_MEAN),
        ],
    }


def ask(address: str, **body: Any) -> Any:
    """One POST to MLflow's REST interface, and its answer."""
    sent = json.dumps(body).encode()
    request = urllib.request.Request(address, sent, {"Content-Type": "application/json"})
    return json.loads(urllib.request.urlopen(request).read())


def save_view(page: str) -> str:
    """Save view and colours in the experiment of a page's address; the address that opens it."""
    base, _, rest = page.partition("/#/experiments/")
    experiment = rest.partition("/")[0]
    api = f"{base}/api/2.0/mlflow"
    found = ask(f"{api}/runs/search", experiment_ids=[experiment], filter=FILTER)["runs"]
    colours = iter(COLOURS)
    for run in sorted(found, key=lambda run: str(run["info"]["run_name"])):
        plain = run["info"]["run_name"].startswith("base")
        colour = PLAIN_COLOUR if plain else next(colours, COLOURS[0])
        tag = {"key": "mlflow.runColor", "value": colour}
        ask(f"{api}/runs/set-tag", run_id=run["info"]["run_id"], **tag)
    now = int(time.time() * 1000)
    value = {"name": "Comparison", "createdAt": now, "updatedAt": now, "state": json.dumps(view())}
    key = f"mlflow.sharedViewState.{SHARE}"
    tag = {"experiment_id": experiment, "key": key, "value": json.dumps(value)}
    ask(f"{api}/experiments/set-experiment-tag", **tag)
    query = {
        "viewStateShareKey": SHARE,
        "compareRunsMode": "CHART",
        "workflowType": "machine_learning",
    }
    return f"{base}/#/experiments/{experiment}/runs?{urllib.parse.urlencode(query)}"


def screenshot(address: str, file: Path) -> None:
    """What headless Chromium shows of a page, cropped, in 256 colours."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no chromium on this machine. On Debian: apt-get install chromium")
    words = [chromium, "--headless=new", "--no-sandbox", "--hide-scrollbars"]
    words += [f"--window-size={SIZE[0]},{SIZE[1]}", "--virtual-time-budget=120000"]
    words += [f"--blink-settings={MOUSE}"]
    subprocess.run([*words, f"--screenshot={file}", address], check=True, capture_output=True)
    picture = Image.open(io.BytesIO(file.read_bytes())).convert("RGB").crop(CROP)
    picture.quantize(256).save(file, optimize=True)


def main() -> None:
    """Make the picture."""
    storage, file = sys.argv[1], Path(sys.argv[2])
    ui = [str(Path(sys.executable).with_name("sweep")), "ui", "quickstart", "--storage", storage]
    with subprocess.Popen([*ui, "--port", "5077"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            screenshot(save_view(server.stdout.readline().strip()), file)
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
