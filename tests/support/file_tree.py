"""Tree of all files of the repository, each with its own first line; `make tree` prints it.

    python -m tests.support.file_tree

Empty `__init__.py` and `py.typed` are left out; a folder that COMMENTS names is one line.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.code_figures import ROOT, listed_files

# Comments on files and folders that cannot carry one themselves.
COMMENTS = {
    ".ci/stamps.json": "slow tests that passed, as what, where, and in how many seconds",
    "benchmarks/landscape/imdb_ut.json": "104 arms of UT with 3 layers on IMDb, 240 steps",
    "benchmarks/landscape/ped2_ut.json": "104 arms of UT with 5 layers on Ped2, 450 steps",
    "benchmarks/results/calibration.json": "the run that docs/statistics.md has its figures from",
    "benchmarks/results/calibration_before.json": "rates of the rule of before, no longer drawn",
    "benchmarks/results/confirmed.json": "the confirmations that docs/confirmed.md is about",
    "benchmarks/results/head_per_layer.json": "a head after every layer: what a step costs",
    "benchmarks/results/decoder_step.json": "exact and estimated inner losses: what a step costs",
    "benchmarks/results/estimated_feasibility.json": "arms with estimated losses; docs/text.md",
    "benchmarks/results/estimator_noise.json": "noise of sampled tokens and layers on Alpaca",
    "benchmarks/results/fused_arms.json": "steps of fused arms; docs/fusion.md",
    "benchmarks/results/time_to_table.json": "every run behind benchmarks/RECORDS.md",
    "benchmarks/results/time_to_table_256.json": "the same with patches of 16 x 16 pixels",
    "benchmarks/results/halving_replay.json": "early stopping replayed; docs/spaces.md",
    "benchmarks/results/leads.json": "the run that docs/leads.md has its figures from",
    "benchmarks/results/anytime.json": "every network behind docs/anytime.md",
    "benchmarks/results/paper_words.json": "results of docs/paper.md",
    "benchmarks/results/dual_optimizers.json": "every arm behind docs/dual_optimizers.md",
    "benchmarks/results/mlflow_pages.json": "seconds until MLflow shows 500 arms, in Chromium",
    "benchmarks/results/one_layer_bound.json": "one layer of UT and DUST; docs/spaces.md",
    "benchmarks/results/search_replay.json": "samplers replayed; docs/spaces.md",
    ".devcontainer/devcontainer.json": "the same environment in an editor's container",
    ".gitignore": "what a run or a build leaves behind",
    "CHANGELOG.md": "what changed, in the user's words",
    "CONTRIBUTING.md": "the rules, and how to run the checks",
    "LICENSE": "MIT",
    "README.md": "the project in one screen, and where things are",
    "docs/schemas/": "JSON schemas, one for what each `--json` prints; docs/json.md lists them",
    "docs/notebook.ipynb": "sweeps from Python: a tiny one, from `sweep.run` to a figure and LaTeX",
    "docs/pictures/anytime/": "figures of docs/anytime.md, as its command draws them",
    "docs/pictures/best_of_n.svg": "the best of N and confirmation, where nothing has an effect",
    "docs/pictures/live_view.svg": "the live view of a running quickstart sweep",
    "docs/pictures/mlflow.png": "MLflow's charts of the quickstart sweep",
    "sweep/report/pages/script.js": "the report's page: sorted tables, points under the pointer",
    "sweep/report/pages/style.css": "the report's page on screens, phones and paper",
    "tests/golden/": "small expected texts; `pytest --update-golden` rewrites them",
}


def shown_files() -> list[Path]:
    """Files of the tree, relative to the root."""
    empty = ("__init__.py", "py.typed")
    return [f for f in listed_files() if f.name not in empty or (ROOT / f).stat().st_size]


def is_in_a_folder_of_one_line(file: Path) -> bool:
    """True for a file that the tree shows by its folder alone."""
    return any(f"{folder}/" in COMMENTS for folder in file.parents)


@functools.cache
def first_line(module: Path) -> str:
    """First line of a Python file's docstring; empty without one."""
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"), filename=str(module))
    return (ast.get_docstring(tree) or "").partition("\n")[0]


def comment_on(file: Path) -> str:
    """First line in which a file says what it is, without the full stop; else from COMMENTS."""
    name = str(file)
    for prefix, comment in COMMENTS.items():
        if name == prefix or (prefix.endswith("/") and name.startswith(prefix)):
            return comment
    if file.suffix == ".py":
        line = first_line(file)
    else:
        try:
            text = (ROOT / file).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            return ""
        text = re.sub(r"\A#!.*\n", "", text)
        heading = re.match(r"# (.+)|\{# (.+) #\}", text)
        line = (heading[1] or heading[2]) if heading else ""
    return line.strip().removesuffix(".")


def tree_lines(folder: Path, files: list[Path]) -> Iterator[str]:
    """Lines of a folder: its files with aligned comments, then the folders below it."""
    depth = len(folder.parts)
    indent = "    " * depth
    here = [f for f in files if f.parent == folder]
    width = max((len(f.name) for f in here), default=0)
    for file in here:
        yield f"{indent}{file.name:<{width}}  # {comment_on(file)}"
    below = {f.parts[: depth + 1] for f in files if f.parent != folder and folder in f.parents}
    for parts in sorted(below):
        child = Path(*parts)
        comment = COMMENTS.get(f"{child}/")
        yield f"{indent}{child.name}/" + (f"  # {comment}" if comment else "")
        if not comment:
            yield from tree_lines(child, [f for f in files if child in f.parents])


def main() -> None:
    """Print the tree."""
    print("\n".join(tree_lines(Path(), shown_files())))


if __name__ == "__main__":
    main()
