"""Command that writes what the pages of findings have from files of results.

    python -m benchmarks.pages

Tables are rewritten in place; what a page says otherwise than the results do is printed. The tests
compare the same (tests/benchmarks/test_pages_of_findings.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.pages import (
    anytime,
    confirmed,
    dual_optimizers,
    leads,
    paper,
    searches,
    shifts,
    statistics,
    steps,
)
from benchmarks.pages.made import Made, rewritten, shown, unaccounted

DOCS = Path(__file__).parents[2] / "docs"
PAGES: Mapping[str, Callable[[], Made]] = {
    "anytime.md": anytime.made,
    "confirmed.md": confirmed.made,
    "dual_optimizers.md": dual_optimizers.made,
    "fusion.md": steps.fused,
    "leads.md": leads.made,
    "paper.md": paper.made,
    "shifts.md": shifts.made,
    "spaces.md": searches.made,
    "statistics.md": statistics.made,
    "text.md": steps.estimated,
}


def faults(text: str, made: Made) -> list[str]:
    """What a page says otherwise than its results do, or lacks; nothing is well."""
    stale = [] if rewritten(text, made.tables) == text else ["a table is not as it is made"]
    lacks = sorted(set(made.tables) - shown(text))
    return [*stale, *lacks, *unaccounted(made.part(text), made.facts)]


def main() -> None:
    """Rewrite every page."""
    for name, make in PAGES.items():
        page, made = DOCS / name, make()
        written = rewritten(page.read_text(encoding="utf-8"), made.tables)
        page.write_text(written, encoding="utf-8")
        print(name, *faults(written, made), sep="\n  ")


if __name__ == "__main__":
    main()
