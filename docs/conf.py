"""Sphinx's configuration: the pages of this folder as a site, built by `make docs`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_FILES = f"{_PROJECT['urls']['Source']}/blob/main"  # what is no page is shown there

project = "descent-sweep"
author = copyright = "the descent-sweep authors"
version = release = _PROJECT["version"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_llms_txt",
]
exclude_patterns = ["README.md", "pictures/anytime/README.md", "schemas"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # blocks of commands have notes after them
autodoc_member_order = "bysource"
autodoc_typehints = "none"

html_theme = "furo"
html_title = f"descent-sweep {version}"
html_theme_options = {
    "source_repository": _PROJECT["urls"]["Source"],
    "source_branch": "main",
    "source_directory": "docs/",
}
html_baseurl = _PROJECT["urls"]["Documentation"]
llms_txt_summary = _PROJECT["description"]


def setup(app: Sphinx) -> None:
    """Let links to files that are no pages lead to the repository."""
    app.connect("source-read", _with_links_to_files)


def _with_links_to_files(app: Sphinx, page: str, source: list[str]) -> None:
    folder = (ROOT / "docs" / page).parent

    def link(found: re.Match[str]) -> str:
        place, _, part = found[1].partition("#")
        file = (folder / place).resolve()
        is_page = file.suffix == ".md" and file.is_relative_to(ROOT / "docs")
        if is_page and file != ROOT / "docs" / "README.md":
            return found[0]
        if file.suffix in (".svg", ".png") and file.is_relative_to(ROOT / "docs"):
            return found[0]
        return f"]({_FILES}/{file.relative_to(ROOT)}{f'#{part}' if part else ''})"

    if page.startswith("decisions/0"):  # listed by their own page, and not in the menu
        source[0] = f"---\norphan: true\n---\n{source[0]}"
    source[0] = re.sub(r"\]\((?!https?:|#|mailto:)([^)\s]+)\)", link, source[0])
