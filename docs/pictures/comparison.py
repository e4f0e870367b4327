"""Picture of a sweep in MLflow: the view that `sweep ui` opens, as Chromium shows it.

    python -m docs.pictures.comparison STORAGE docs/pictures/mlflow.png

Of the sweep `quickstart` in that storage, from the repository's root. Needs Debian's package
chromium.
"""

from __future__ import annotations

import io
import subprocess
import sys
import time
from pathlib import Path

from PIL import Image

from tests.support.browser import browser

SIZE = (1600, 1160)
SHOWN = (1200, 870)
DRAWN = "document.querySelectorAll('.js-plotly-plot .scatterlayer .trace').length >= 16"
SETTLED_S = 2.0  # charts are drawn twice


def picture(address: str, file: Path) -> None:
    """What is seen of the whole page once its charts are drawn, in 256 colours."""
    with browser(SIZE) as page:
        page.open(address.partition("#")[0])
        page.wait_for("document.querySelector('button[aria-label=Close]')")  # of the assistant
        page.ask("document.querySelector('button[aria-label=Close]').click()")
        page.open(address)
        page.wait_for(DRAWN)
        time.sleep(SETTLED_S)
        page.picture(file)
    seen = Image.open(io.BytesIO(file.read_bytes())).convert("RGB").resize(SHOWN)
    seen.quantize(256).save(file, optimize=True)


def main() -> None:
    """Make the picture."""
    storage, file = sys.argv[1], Path(sys.argv[2])
    ui = [str(Path(sys.executable).with_name("sweep")), "ui", "quickstart", "--storage", storage]
    with subprocess.Popen([*ui, "--port", "5077"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            picture(server.stdout.readline().strip(), file)
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
