"""Rules about the code itself: imports, names, sizes, links, and what files say of themselves."""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.support import file_tree
from tests.support.code_figures import PACKAGES, ROOT, circles, figures, listed_files, modules
from tests.support.file_tree import first_line

# The only files that may import each of these, at any depth of the file.
OWNERS = {
    "av": ("trainables/datasets/video/video_files.py",),
    "botocore": ("sweep/doctor/yaml_aws.py",),
    "datasets": ("trainables/datasets/text/hub.py",),
    "jinja2": ("sweep/render/html.py",),
    "mlflow": (
        "sweep/tracking/tracker.py",
        "sweep/tracking/client.py",
        "sweep/tracking/database.py",
        "sweep/tracking/runs.py",
        "sweep/tracking/models.py",
    ),
    "matplotlib": ("sweep/report/*.py", "sweep/api/loaded.py"),
    "optuna": ("sweep/study/sampler.py",),
    "pyarrow": ("trainables/records/stored_files.py", "trainables/fetching/remote_folders.py"),
    "ray": (
        "trainables/trial.py",
        "trainables/sharding/placed.py",
        "sweep/doctor/yaml_check.py",
        "sweep/doctor/cluster.py",
        "sweep/executors/tune.py",
        "sweep/executors/ray_cluster.py",
        "sweep/executors/ray_session.py",
        "sweep/slurm/ray_node.py",
        "sweep/cluster/jobs.py",
        "sweep/cluster/route.py",
    ),
    "sklearn": ("trainables/probes.py",),
    "statsmodels": ("sweep/statistics/failures.py",),
    "transformers": (
        "trainables/checkpoints.py",
        "trainables/datasets/text/small_decoder.py",
        "trainables/datasets/text/tokenizer.py",
        "trainables/models/*.py",
        "trainables/tasks/*.py",
    ),
}
HEAVY = ("mlflow", "optuna", "ray", "torch", "transformers")
LIGHT_MODULES = (
    "search_spaces",
    "search_spaces.catalog",
    "search_spaces.space",
    "sweep.statistics.decisions",
    "sweep.study.definition",
    "sweep.study.feasibility",
    "sweep.study.pairs",
    "sweep.study.plan",
    "trainables.primal_dual.certificate",
    "trainables.config.arm",
    "trainables.records.objects",
    "trainables.registry.find_plugins",
    "trainables.primal_dual.constraints",
    "trainables.records.arm_record",
    "trainables.records.arms",
)
# What each of these may not load, in this order in one process: what none of them loads together,
# none loads alone.
LOADED_WITHOUT = {
    "sweep.cli.running": ("scipy",),  # for the help of run
    **dict.fromkeys(LIGHT_MODULES, HEAVY),
    "sweep.study.proposals": ("optuna",),
    "sweep.tracking.tracker": ("mlflow",),
    "sweep.tracking.rows": ("mlflow",),
    "sweep.tracking.ui": ("mlflow",),
    "sweep.tracking.writer": ("mlflow",),
    "sweep.tracking.process": ("mlflow", "torch"),
    "sweep.executors.tune": ("torch",),  # in the driver
}
LONGEST_SUMMARY = 80  # characters of a module's first line
LONGEST_DECISION = 10  # lines below its title
QUESTION = re.compile(r"(What|How|Whether|Which|Where|Who|Why|When)\b")
DRAWERS = ("common", "helpers", "misc", "util", "utils")


def syntax(file: Path) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"), filename=str(file))


@functools.cache
def imported_libraries(file: Path) -> set[str]:
    """Top-level names of absolute imports, also of those inside functions."""
    names: set[str] = set()
    for node in ast.walk(syntax(file)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module or "")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names.update(a.value for a in node.args if isinstance(a, ast.Constant))
    return {name.partition(".")[0] for name in names}


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run((sys.executable, "-c", code), cwd=ROOT, capture_output=True, text=True)


# --- imports ------------------------------------------------------------------------------------


def test_the_import_contracts_of_pyproject_hold() -> None:
    ran = run_python(
        "from importlinter import cli; raise SystemExit(cli.lint_imports(no_cache=True))"
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("library", OWNERS)
def test_a_foreign_library_is_imported_only_by_its_owner(library: str) -> None:
    importers = [f for f in modules() if library in imported_libraries(f)]
    strangers = [
        str(f) for f in importers if not any(fnmatch(str(f), owner) for owner in OWNERS[library])
    ]
    assert not strangers, f"{library} belongs to {', '.join(OWNERS[library])}"


OURS = ("sweep", "trainables", "trainables_testing", "search_spaces", "tests", "benchmarks")


def names_of(module: Path) -> set[str]:
    """What a module defines or imports at its top, also below an ``if`` or ``try``."""
    names: set[str] = set()
    for node in ast.walk(syntax(module)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return names


def test_benchmarks_import_what_there_is() -> None:
    """No type checker reads them, and some run once in a year."""
    missing = []
    for file in (*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "docs").rglob("*.py")):
        for node in ast.walk(syntax(file)):
            module = (isinstance(node, ast.ImportFrom) and node.module) or ""
            if module.partition(".")[0] in OURS:
                assert isinstance(node, ast.ImportFrom)
                place = ROOT / module.replace(".", "/")
                is_package = place.is_dir()
                source = place / "__init__.py" if is_package else place.with_suffix(".py")
                for alias in node.names:
                    inside = is_package and any(
                        (place / end).exists() for end in (alias.name, f"{alias.name}.py")
                    )
                    if not inside and not (source.exists() and alias.name in names_of(source)):
                        missing.append(f"{file.relative_to(ROOT)}: {alias.name} of {module}")
    assert missing == []


def test_no_test_imports_another_test() -> None:
    found = re.compile(r"^\s*(?:from|import) tests\.(?:\w+\.)*test_\w+", re.MULTILINE)
    importing = [
        f"{file}: {line.strip()}"
        for file in listed_files()
        if file.suffix == ".py" and file.parts[0] == "tests"
        for line in found.findall((ROOT / file).read_text(encoding="utf-8"))
    ]
    assert not importing, "what tests share lies in tests/support"


@pytest.fixture(scope="module")
def loaded() -> dict[str, list[str]]:
    """What of LOADED_WITHOUT is there once a module has been imported."""
    ran = run_python(
        "import importlib, json, sys\n"
        "found = {}\n"
        f"for module, others in {LOADED_WITHOUT!r}.items():\n"
        "    importlib.import_module(module)\n"
        "    found[module] = sorted(set(others) & set(sys.modules))\n"
        "print(json.dumps(found))\n"
    )
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout))


@pytest.mark.parametrize("module", LOADED_WITHOUT)
def test_modules_load_without_heavy_libraries(module: str, loaded: dict[str, list[str]]) -> None:
    assert loaded[module] == [], f"import {module}, or one before it, loads them"


# --- names and sizes ----------------------------------------------------------------------------


def test_no_module_imports_a_private_name_of_another() -> None:
    """Outside libraries have theirs, which test_ray_private.py lists for Ray."""
    private = [
        f"{file}: {name.name}"
        for file in modules()
        for part in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        if isinstance(part, ast.ImportFrom) and str(part.module).partition(".")[0] in PACKAGES
        for name in part.names
        if name.name.startswith("_")
    ]
    assert not private


def test_pairs_are_joined_and_proposals_judged_at_few_places() -> None:
    callers: dict[str, list[str]] = {"join": [], "ProposalResult": []}
    for file in (file for file in modules() if file.parts[0] == "sweep"):
        for node in ast.walk(syntax(file)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in callers:
                name = ast.unparse(node.func)
                if name in ("join", "pairs.join", "ProposalResult", "pairs.ProposalResult"):
                    callers[name.removeprefix("pairs.")].append(str(file))
    assert callers == {
        "join": ["sweep/study/pairs.py"],
        "ProposalResult": ["sweep/confirmation/arms.py", "sweep/study/pairs.py"],
    }


def test_no_file_is_a_drawer() -> None:
    drawers = [str(f) for f in listed_files() if f.stem.strip("_") in DRAWERS]
    assert not drawers, "name a file by its concept"


def test_every_figure_of_the_code_keeps_its_limit() -> None:
    assert not [str(figure) for figure in figures() if not figure.is_within]


def test_circles_are_found_with_and_without_imports_for_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "ring"
    package.mkdir()
    for_types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import ring.{}\n"
    sources = {
        "__init__": "",
        "one": "import ring.two\n",
        "two": "def later(): from ring import one\n",
        "three": "import ring.four\n",
        "four": for_types.format("three"),
        "five": "import ring.one\n",
    }
    for name, source in sources.items():
        (package / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    assert circles("ring", with_types=False) == ["ring.one, ring.two"]
    assert circles("ring", with_types=True) == ["ring.four, ring.three", "ring.one, ring.two"]


def test_the_first_line_of_a_module_is_no_question() -> None:
    files = [f for f in listed_files() if f.suffix == ".py"]
    asked = {str(f): first_line(f) for f in files if QUESTION.match(first_line(f))}
    assert not asked, "say what the module is: a noun phrase that begins with the standard term"


def test_the_first_line_of_a_module_is_short() -> None:
    long = {str(f): first_line(f) for f in modules() if len(first_line(f)) > LONGEST_SUMMARY}
    assert not long, f"at most {LONGEST_SUMMARY} characters; the rest goes below it"


def test_metric_names_are_spelled_only_in_results() -> None:
    from trainables.records import arm_record as results

    constants = [v for n, v in vars(results).items() if n.isupper() and isinstance(v, str)]
    sections = sorted({name.partition("/")[0] for name in constants if "/" in name})
    assert sections, "trainables/records/arm_record.py names no metric"
    metric = re.compile(rf"({'|'.join(sections)})/[a-z0-9_.{{}}:]*")
    spelled = [
        f"{file}:{node.lineno}: {node.value!r}"
        for file in modules()
        if str(file) != "trainables/records/arm_record.py"
        for node in string_literals(file)
        if metric.fullmatch(node.value)
    ]
    assert not spelled, "use the constants of trainables/records/arm_record.py"


@functools.cache
def string_literals(file: Path) -> list[ast.Constant]:
    """Strings that the code uses; docstrings and other bare strings are not among them."""
    tree = syntax(file)
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare
    ]


def test_models_and_tasks_are_named_in_their_table_alone() -> None:
    """So that one more is a row of that table, and nothing here depends on which there are."""
    from trainables.registry.built_in import MODELS, TASKS

    own = {
        "trainables/config/arm.py": {"video_denoising"},  # the defaults
        "trainables/config/model.py": {"ut"},
        "trainables/models/text_ut.py": {"text_ut"},  # keys its draws
        "trainables/models/vit.py": {"vit"},  # a family of transformers
        "sweep/cost/counted_work.py": {"vit"},
        "trainables/datasets/video/load.py": {"decoder"},  # of video files
        "trainables/registry/built_in.py": {*MODELS, *TASKS},
    }
    strangers = [
        f"{file}:{node.lineno}: {node.value!r}"
        for file in modules()
        if file.parts[0] != "search_spaces"
        for node in string_literals(file)
        if node.value in {*MODELS, *TASKS} - own.get(str(file), set())
    ]
    assert not strangers, "ask the specification (registry/specs.py)"


# --- documents ----------------------------------------------------------------------------------


def test_markdown_links_lead_to_files() -> None:
    dead = []
    for page in (f for f in listed_files() if f.suffix == ".md"):
        text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path = target.partition("#")[0]
            if (
                not re.match(r"[a-z]+:", target)
                and path
                and not (ROOT / page.parent / path).exists()
            ):
                dead.append(f"{page}: {target}")
    assert not dead


def headings(page: Path) -> list[str]:
    """The headings of a page, without code blocks."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.S)
    return re.findall(r"^#+ (.+)$", text, re.MULTILINE)


def anchor(heading: str) -> str:
    """The fragment by which GitHub links to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_links_to_a_heading_lead_to_one() -> None:
    dead = []
    for page in (f for f in listed_files() if f.suffix == ".md"):
        text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.S)
        for path, fragment in re.findall(r"\]\(([\w./-]*\.md)?#([^)\s]+)\)", text):
            there = page.parent / path if path else page
            if fragment not in map(anchor, headings(there)):
                dead.append(f"{page}: {path}#{fragment}")
    assert not dead


def test_sections_that_code_names_are_on_their_page() -> None:
    missing = []
    for file in (f for f in listed_files() if f.suffix == ".py"):
        text = re.sub(r"\s*\n\s*(#\s*)?", " ", (ROOT / file).read_text(encoding="utf-8"))
        for page, section in re.findall(r"(docs/\w+\.md), ([A-Z][\w, ]+)", text):
            if not any(section.startswith(heading) for heading in headings(Path(page))):
                missing.append(f"{file}: {page}, {section}")
    assert not missing


def test_pages_name_decisions_by_their_titles() -> None:
    pages = [f for f in listed_files() if f.suffix == ".md"]
    number = re.compile(r"\bdecisions?\s+\d+|\[\d+\]\([\w/]*decisions", re.IGNORECASE)
    texts = {str(page): (ROOT / page).read_text(encoding="utf-8") for page in pages}
    assert not {page: hit[0] for page, text in texts.items() if (hit := number.search(text))}


def test_decisions_that_code_names_are_there() -> None:
    kept = {f.name[:4] for f in listed_files() if f.parent == Path("docs/decisions")}
    sources = [f for f in listed_files() if f.suffix in (".py", ".toml", ".yaml", ".txt")]
    named = {
        (str(file), number)
        for file in sources
        for number in re.findall(
            r"docs/decisions/(\d{4})", (ROOT / file).read_text(encoding="utf-8")
        )
    }
    assert named
    assert not {(file, number) for file, number in named if number not in kept}


def test_the_readme_names_files_that_there_are() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"\| ([a-z_/]+\.py) \|", text)
    assert len(named) >= 7
    assert not [name for name in named if not (ROOT / name).is_file()]


def test_pages_name_files_that_there_are() -> None:
    files = [f"/{file}" for file in listed_files()]
    folders = {f"/{folder}/" for file in listed_files() for folder in file.parents}
    named = re.compile(r"`((?:[a-z_]+/)+(?:\w+\.(?:py|md|yaml|sh)|[a-z_]+/))`")
    missing = []
    for page in (f for f in listed_files() if f.suffix == ".md"):
        for name in named.findall((ROOT / page).read_text(encoding="utf-8")):
            if not any(there.endswith(f"/{name}") for there in (*files, *folders)):
                missing.append(f"{page}: {name}")
    assert not missing


def test_every_decision_is_short_complete_and_in_the_index_by_its_title() -> None:
    folder = Path("docs/decisions")
    records = [f for f in listed_files() if f.parent == folder and f.name != "README.md"]
    index = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    texts = {f.name: (ROOT / f).read_text(encoding="utf-8") for f in records}
    titles = {(text.partition("\n")[0].removeprefix("# "), name) for name, text in texts.items()}
    assert sorted(re.findall(r"- \[(.+)\]\((\S+\.md)\)", index)) == sorted(titles)
    for name, text in texts.items():
        lines = [line for line in text.splitlines()[1:] if line]
        assert len(lines) <= LONGEST_DECISION, name
        for part in ("**Decision.**", "**Why.**", "**Cost.**"):
            assert part in text, f"{name}: no {part}"


def test_every_file_says_what_it_is_in_the_tree() -> None:
    assert not [str(f) for f in file_tree.shown_files() if not file_tree.comment_on(f)], (
        "no first line to take the tree's comment from: give a module a docstring, a Markdown file "
        "a heading, any other file a leading '# comment', or name it in file_tree.COMMENTS"
    )


def test_comments_of_the_tree_are_on_files_that_there_are() -> None:
    assert not [name for name in file_tree.COMMENTS if not (ROOT / name).exists()]


def test_the_tree_has_a_line_for_every_file(capsys: pytest.CaptureFixture[str]) -> None:
    file_tree.main()
    lines = capsys.readouterr().out.splitlines()
    drawn = {line.split()[0] for line in lines}
    single = [f for f in file_tree.shown_files() if not file_tree.is_in_a_folder_of_one_line(f)]
    assert not {f.name for f in single} - drawn
    folders = {part for f in single for part in f.parent.parts}
    assert sum(not line.split()[0].endswith("/") for line in lines) == len(single)
    assert not {f"{name}/" for name in folders} - drawn
