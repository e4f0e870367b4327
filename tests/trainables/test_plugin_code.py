"""Files of a plug-in that its digest is of, in a checkout and as installed."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from trainables.registry import plugin_code as plugins
from trainables.registry.plugin_code import plugin_code

Codes = Callable[..., list[str]]


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch) -> Codes:
    """``code(folder)``: the digests of the plug-in acme there, or of another entry point's."""

    def of(folder: Path, entry: str = "acme") -> list[str]:
        importlib.invalidate_caches()
        plugins._installed.cache_clear()
        plugins._record.cache_clear()
        with monkeypatch.context() as changed:
            changed.setattr(sys, "path", [str(folder), *sys.path])
            return plugin_code(entry, [], as_loaded=False)[0]

    return of


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def install(folder: Path, package: str, files: Mapping[str, str]) -> Path:
    """As pip leaves a package in a folder."""
    record = "".join(f"{name},sha256=x,1\n" for name in files)
    return write(folder, {**files, f"{package}-1.0.dist-info/RECORD": record})


PLUGIN = {
    "acme/__init__.py": "from acme.net import Net\n",
    "acme/net.py": "import acme_layers\n\ndeep = import_module(f'.{name}', 'acme.more')\n",
    "acme/more/__init__.py": "",
    "acme/more/deep.py": "W = 1\n",
    "acme/vocabulary.txt": "a\n",
    "acme/assets/more.json": "{\n}\n",
    "acme_layers.py": "import acme_low\n\nW = 1\n",
    "acme_low/__init__.py": "W = 1\n",
}


def test_a_checkout_and_what_is_installed_of_it_have_one_digest(
    tmp_path: Path, code: Codes
) -> None:
    site = install(tmp_path / "lib/site-packages", "acme", PLUGIN)
    target = install(tmp_path / "target", "acme", PLUGIN)  # pip install --target
    checkout = write(tmp_path / "src", PLUGIN)
    write(
        checkout,
        {
            "acme/tests/test_net.py": "assert 1\n",
            "acme/.ipynb_checkpoints/net-checkpoint.py": "W = 2\n",
            "acme/more/test_deep.py": "assert 1\n",
            "acme/conftest.py": "W = 1\n",
            "acme/sweeps/arms/ab/progress.json": "{}",
            "acme/sweeps/sweeps/first/definition.json": "{}",
            "acme/results/sweeps/first/definition.json": "{}",
            "acme.egg-info/top_level.txt": "acme\n",
            "other.egg-info/top_level.txt": "acme_layers\n",
            "setup.py": "W = 1\n",
        },
    )
    (checkout / "acme/assets/more.json").write_bytes(b"{\r\n}\r\n")
    digests = code(checkout)
    assert code(site) == code(target) == digests
    assert [line.partition(" ")[0] for line in digests] == [
        "acme",
        "acme.more",
        "acme.more.deep",
        "acme.net",
        "acme/assets/more.json",
        "acme/vocabulary.txt",
        "acme_layers",
        "acme_low",
    ]


@pytest.mark.parametrize("file", PLUGIN)
@pytest.mark.parametrize("installed", [False, True])
def test_each_file_of_a_plug_in_counts(
    tmp_path: Path, code: Codes, file: str, installed: bool
) -> None:
    folder = install(tmp_path / "lib/site-packages", "acme", PLUGIN) if installed else tmp_path
    write(folder, {"acme-0.9.dist-info/RECORD": "acme/net.py,sha256=x,1\n"})  # of before an upgrade
    before = code(write(folder, PLUGIN))
    (folder / file).write_text((folder / file).read_text() + "W = 2\n")
    assert code(folder) != before


NOTICED = {
    "a namespace beside": ({"acme.py": "from low.x import f\n"}, "low/x.py"),
    "a relative import": ({"acme/__init__.py": "from . import x\n"}, "acme/x.py"),
    "a parent": ({"acme.py": "import low.x\n", "low/x.py": ""}, "low/__init__.py"),
    "a literal import": ({"acme.py": 'm = import_module("low")\n'}, "low.py"),
    "a literal import under another name": (
        {"acme.py": "from importlib import import_module as im\nim('low')\n"},
        "low.py",
    ),
    "what is run": ({"acme.py": "exec((here / 'low.py').read_text())\n"}, "low.py"),
    "data without a suffix": ({"acme.py": "load('low/vocabulary')\n"}, "low/vocabulary"),
    "a name": ({"acme.py": 'm = resolve_name("low.x:f")\n'}, "low/x.py"),
    "an import in a function": ({"acme.py": "def f():\n    import low\n"}, "low.py"),
    "an import of all": (
        {"acme/__init__.py": "from .x import *\n", "acme/x/__init__.py": "__all__ = ['y']\n"},
        "acme/x/y.py",
    ),
    "a module by a made name": (
        {"acme/__init__.py": "m = import_module(f'acme.nets.{n}')\n", "acme/nets/__init__.py": ""},
        "acme/nets/y.py",
    ),
    "what a long file may import": (
        {"acme/__init__.py": f"from .x import y\nx = {'+'.join('1' * 3000)}\n"},
        "acme/x.py",
    ),
    "data beside a module": ({"acme.py": "load(here / 'low/w.dat')\n"}, "low/w.dat"),
    "data of a name in a package": (
        {"acme/__init__.py": "import acme.x\n", "acme/x.py": "load('w.strange')\n"},
        "acme/w.strange",
    ),
    "code without its source": ({"acme/a.txt": ""}, "acme/__init__.pyc"),
    "a source of what is compiled": (
        {"acme/__init__.py": "from . import x\n", "acme/x.cpython-311-x86_64-linux-gnu.so": ""},
        "acme/x.pyx",
    ),
    **{
        f"data: {name}": ({"acme/__init__.py": ""}, f"acme/{name}")
        for name in (
            "w.csv",
            "W.TXT",
            "w.npy",
            "w.pt",
            "w.bpe",
            "w.yaml",
            "w.safetensors",
            "w.jsonl.gz",
        )
    },
}


@pytest.mark.parametrize("one", NOTICED)
def test_what_else_counts(tmp_path: Path, code: Codes, one: str) -> None:
    files, changed = NOTICED[one]
    before = code(write(tmp_path, {**files, changed: "W = 1\n"}))
    assert code(write(tmp_path, {changed: "W = 2\n"})) != before


def test_other_packages_do_not_count(tmp_path: Path, code: Codes) -> None:
    site = tmp_path / "lib" / "site-packages"
    install(site, "acme", {"acme/models/__init__.py": "import numbers_of, acme.billing, torch\n"})
    install(site, "billing", {"acme/billing/__init__.py": "W = 1\n", "acme/models/x.json": "1"})
    install(site, "numbers_of", {"numbers_of/__init__.py": "W = 1\n"})
    write(site, {"old-1.egg-info/top_level.txt": "old\n", "old.py": "W = 1\n"})
    write(site, {"acme/models/__init__.py": "import numbers_of, acme.billing, torch, old, json\n"})
    assert [one.partition(" ")[0] for one in code(site, "acme.models")] == ["acme.models"]


def test_a_text_names_no_module_from_elsewhere(
    tmp_path: Path, code: Codes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process is another program, and is started in another folder."""
    program = (
        "m = import_module(name)\nif __name__ == '__main__':\n    run('train', 'a..b', 'low.')\n"
    )
    plugin = write(tmp_path / "plugin", {"acme/__init__.py": program, "low.py": ""})
    elsewhere = write(tmp_path / "elsewhere", {"train.py": "W = 1\n"})
    monkeypatch.syspath_prepend(elsewhere)
    assert [one.partition(" ")[0] for one in code(plugin)] == ["acme"]


def test_a_build_does_not_count(tmp_path: Path, code: Codes) -> None:
    name = "acme/_x.cpython-311-x86_64-linux-gnu.so"
    files = {"acme/__init__.py": "from acme import _x\n", "acme/_x.py": "W = 1\n", name: "head"}
    before = code(write(tmp_path, files))
    assert code(write(tmp_path, {name: "node", "acme/__pycache__/x.json": "1"})) == before
    assert code(write(tmp_path, {"acme/_x.py": "W = 2\n"})) != before


def test_nothing_that_lies_in_a_package_ends_a_command(tmp_path: Path, code: Codes) -> None:
    files = {"acme/__init__.py": "import_module(name)\n", "acme/x.py": "W = 1\n"}
    before = code(write(tmp_path, files))
    os.symlink("somebody@host.123", tmp_path / "acme/.#model.py")
    os.symlink("nowhere", tmp_path / "acme/lost.json")
    os.symlink("..", tmp_path / "acme/round")
    (tmp_path / "acme/configs.json").mkdir()
    (tmp_path / "acme/y.py").mkdir()
    os.mkfifo(tmp_path / "acme/pipe.txt")
    assert code(tmp_path) == before


def test_of_a_very_large_file_the_size_counts(tmp_path: Path, code: Codes) -> None:
    write(tmp_path, {"acme/__init__.py": ""})
    size = 70 * 2**20
    for more in (0, 1):
        with (tmp_path / "acme/w.pt").open("wb") as file:
            file.truncate(size + more)
        assert f"acme/w.pt {size + more} bytes" in code(tmp_path)


LOADED = """
import sys
from pathlib import Path
from trainables.registry.plugin_code import plugin_code

def look():
    return plugin_code("acme", [], as_loaded=True)[0]

def loaded(lines):
    return [line for line in lines if line.startswith("acme")]

folder = Path(sys.argv[1])
sys.path.insert(0, str(folder))
import acme
first = look()
import acme.net  # by build, as a rule: after the first look
for name in ("acme/__init__.py", "acme/net.py", "acme/w.csv", "other.py"):
    (folder / name).write_text("from acme import net\\nimport other\\nW = 2\\n")
(folder / "acme" / "new.csv").write_text("1")
assert look() == first
new = plugin_code("acme", [], as_loaded=False)[0]
assert new != first
import other  # another plug-in of that folder, which is asked for later
assert loaded(plugin_code("other", [], as_loaded=True)[0]) == first
"""


def test_a_process_says_what_it_loaded(tmp_path: Path) -> None:
    write(tmp_path, {"acme/__init__.py": "def f():\n    import acme.net\n", "other.py": ""})
    write(tmp_path, {"acme/w.csv": "1", "acme/net.py": "W = 1\n"})
    done = subprocess.run(
        (sys.executable, "-c", LOADED, str(tmp_path)), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
