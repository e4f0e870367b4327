"""Seconds and megabytes of a large sweep's report, and how fast a browser has it.

    python -m benchmarks.report_size [--pairs N] [--settings N] [--out FILE]

The sweep is imitated (benchmarks/imitated): finished arms with records of a real one's form, in a
folder. `sweep report` is a process of its own, from its start to its last line. The page is opened
by Debian's headless Chromium three times; told are the milliseconds from the start of navigation to
the first contents and to the end of loading, and the page's elements.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.reading import store_sweep
from sweep.report.report import PAGE
from tests.support.browser import browser
from trainables.machine.cores import usable_cores
from trainables.plain import Json

TIMES = 3
_TIMES_MS = """(() => {
  const load = performance.getEntriesByType("navigation")[0].loadEventEnd;
  return [performance.getEntriesByName("first-contentful-paint")[0].startTime, load];
})()"""
# Two frames after a jump to the last figure: what has not been laid out before is laid out then.
_JUMP_MS = """new Promise(done => {
  const began = performance.now();
  [...document.querySelectorAll("figure")].pop().scrollIntoView();
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));
})"""


def opened(page: Path) -> list[dict[str, Json]]:
    """What a browser of its own took each time."""
    found: list[dict[str, Json]] = []
    for _ in range(TIMES):
        with browser() as shown:
            shown.open(page.as_uri())
            shown.wait_for("performance.getEntriesByName('first-contentful-paint').length")
            painted, loaded = shown.ask(_TIMES_MS)
            found.append(
                {
                    "first_contents_ms": painted,
                    "loaded_ms": loaded,
                    "jump_to_last_figure_ms": shown.ask(_JUMP_MS),
                    "elements": shown.ask("document.querySelectorAll('*').length"),
                }
            )
    return found


def main() -> None:
    """Parse, store, report, open, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--settings", type=int, default=50)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="report-") as folder:
        root, out = Path(folder, "sweeps"), Path(folder, "report")
        pairs = store_sweep(str(root), options.pairs, options.settings)
        command = [sys.executable, "-m", "sweep.cli", "report", "scale", "--out", str(out)]
        began = time.perf_counter()
        subprocess.run([*command, "--storage", str(root)], check=True, stdout=subprocess.DEVNULL)
        result = {
            "pairs": pairs,
            "settings": options.settings,
            "cpus": usable_cores(),
            "load": os.getloadavg()[0],
            "report_s": time.perf_counter() - began,
            "page_mb": (out / PAGE).stat().st_size / 1e6,
            "all_files_mb": sum(f.stat().st_size for f in out.rglob("*.*")) / 1e6,
            "opened": opened(out / PAGE),
        }
    text = json.dumps(result, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
