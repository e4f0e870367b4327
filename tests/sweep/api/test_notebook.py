"""The notebook of docs/: executed top to bottom in a fresh kernel, and kept small with its outputs.

A kernel, not the cells alone: signals, the event loop and what is displayed are a kernel's own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[3] / "docs" / "notebook.ipynb"
LARGEST = 300_000  # bytes, outputs included


def opened() -> Any:
    import nbformat

    return nbformat.read(NOTEBOOK, as_version=4)


def outputs(notebook: Any) -> list[set[str]]:
    """What each cell of code displays or prints, by kind."""
    return [
        {kind for out in cell.outputs for kind in (out.get("data") or {out.get("name"): ""})}
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.slow
def test_the_notebook_runs_top_to_bottom_in_a_fresh_kernel(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook, kept = opened(), outputs(opened())
    env = {n: v for n, v in os.environ.items() if n not in ("MPLBACKEND", "SWEEP_STORAGE")}
    env["PYTHONPATH"] = str(NOTEBOOK.parents[1])
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env=env)  # raises where a cell does
    assert (tmp_path / "sweeps" / "sweeps" / "notebook").is_dir()
    if request.config.getoption("--update-golden"):
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # times
        nbformat.write(notebook, NOTEBOOK)
        return
    assert outputs(notebook) == kept


def test_the_notebook_is_kept_executed_small_and_without_places_of_a_machine() -> None:
    notebook, text = opened(), NOTEBOOK.read_text(encoding="utf-8")
    assert len(text) < LARGEST
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert not [place for place in ("/tmp/", "/home/", "/root/", "/work/") if place in text]
    assert [kinds for kinds in outputs(notebook) if "image/png" in kinds]
    assert [kinds for kinds in outputs(notebook) if "text/html" in kinds]
