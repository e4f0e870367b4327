"""Every benchmark at its smallest size: it ends, and prints one JSON object."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

import benchmarks.anytime.__main__ as anytime
from benchmarks import dual_optimizers, penalty_barrier, text_shifts
from benchmarks.imitated.arms import definition
from benchmarks.pages.paper import ARMS
from tests.support.data.text_runs import LONGEST, checkpoint_in

ROOT = Path(__file__).parents[2]
IMITATED = ("--pairs", "2", "--settings", "2")
QUICK = ("--set", "steps=8", "--set", "report_every=4", "--set", "n_proposals=1")
# Words of the command line, by benchmark.
FAST: dict[str, tuple[str, ...]] = {
    "calibration": ("--sweeps", "20", "--tool-sweeps", "1"),
    "fused_arms": (
        "--widths", "64", "--arms", "1", "--layers", "2", "--batches", "2", "--repeats", "1",
        "--steps", "2",
    ),
    "reading": (*IMITATED, "--delay-ms", "0", "--verbs", "status"),
    "scale": (
        "--small", "2", "--large", "4", "--settings", "2", "--stores", "local", "--untracked",
        "--tune", "0",
    ),
    "search_replay": ("--samplers", "random", "quasi_random", "--repeats", "1", "--most", "10"),
}  # fmt: skip
SLOW: dict[str, tuple[str, ...]] = {
    "decoder_step": (
        "--layers", "3", "--width", "16", "--vocabulary", "30", "--batch", "1", "--length", "9",
        "--blocks", "1",
    ),
    "halving_replay": ("--sweeps", "2", "--searches", "2"),
    "one_layer_bound": ("--frames", "3", "--batches", "1"),
    "head_per_layer": (
        "--layers", "3", "--width", "8", "--vocabulary", "30", "--batch", "1", "--length", "8",
        "--steps", "1", "--repeats", "1",
    ),
    "overhead": ("--arms", "2", "--seconds", "0.05", "--workers", "1", "--repeats", "1"),
    "scale on S3 and Tune": (
        "--small", "2", "--large", "4", "--settings", "2", "--stores", "s3", "--tune", "4",
    ),
    "search_replay": ("--samplers", "tpe", "ctpe", "gp", "--repeats", "1", "--most", "10"),
    "time_to_table": (
        "--repeats", "1", *QUICK, "--only", "stock untracked", "--only", "product fused",
        "--only", "product new workers",
    ),
    "tracking": ("--repeats", "1"),
    "training_step": ("--case", "ut", "--blocks", "1"),
}  # fmt: skip
IN_A_BROWSER: dict[str, tuple[str, ...]] = {
    "mlflow_pages": (
        "--pairs", "40", "--settings", "10", "--compared", "20", "--repeats", "1",
    ),
    "report_size": IMITATED,
}  # fmt: skip
# These train on data sets or weights of the reader's own.
ON_REAL_DATA = (
    "anytime", "dual_optimizers", "leads", "paper_words", "penalty_barrier", "text_shifts",
)  # fmt: skip
ON_A_DECODER = ("estimated_feasibility", "estimator_noise")


def ran(name: str, *words: str) -> dict[str, object]:
    """What it prints, run as its page says."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *words],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, object] = json.loads(done.stdout)
    assert found, "an empty object"
    return found


def test_no_benchmark_is_left_out_here() -> None:
    there = {
        file.parent.name if file.stem == "__main__" else file.stem
        for file in (*(ROOT / "benchmarks").glob("*.py"), *ROOT.glob("benchmarks/*/__main__.py"))
        if "__main__" in file.read_text("utf-8") or file.stem == "__main__"
    }
    tried = {name.partition(" ")[0] for name in (*FAST, *SLOW, *IN_A_BROWSER)}
    of_a_gpu = {"gpu"}  # tests/benchmarks/test_gpu_course.py, test_gpu_measurements.py
    writes_docs = {"pages"}  # tests/benchmarks/test_pages_of_findings.py
    assert there == tried | set(ON_REAL_DATA) | set(ON_A_DECODER) | of_a_gpu | writes_docs


def test_make_bench_runs_those_that_need_no_files_of_ones_own() -> None:
    """As the Makefile picks them; they need no word of the command line either."""
    picked = (ROOT / "Makefile").read_text("utf-8").partition("for file in $$(")[2]
    command = picked.partition("); do")[0].replace("$$", "$")
    found = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True)
    tried = {name.partition(" ")[0] for name in (*FAST, *SLOW, *IN_A_BROWSER)}
    assert {Path(file).stem for file in found.stdout.split()} == tried
    for file in found.stdout.split():
        text = (ROOT / file).read_text("utf-8")
        for argument in text.split("add_argument(")[1:]:
            assert argument.lstrip().startswith(('"--', 'f"--')) or "nargs=" in argument, file


@pytest.mark.parametrize("settings", [1, 50, 175, 1000])
def test_imitated_settings_are_as_many_as_are_asked_for(settings: int) -> None:
    space = definition(settings, settings).space
    arms = {space.run(s, space.default_point(s), seed=0).signature() for s in space.settings}
    assert len(arms) == settings


@pytest.mark.parametrize("name", FAST)
@pytest.mark.long("a process that imports torch, and Optuna or Ray")
def test_a_cheap_benchmark_runs(name: str) -> None:
    ran(name, *FAST[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_a_benchmark_of_processes_runs(name: str, ray_home: Path) -> None:
    ran(name.partition(" ")[0], *SLOW[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_A_BROWSER)
def test_a_benchmark_in_a_browser_runs(name: str) -> None:
    if shutil.which("chromium") is None:
        pytest.skip("needs Debian's package chromium")
    ran(name, *IN_A_BROWSER[name])


@pytest.mark.slow
@pytest.mark.parametrize("module", [dual_optimizers, penalty_barrier])
def test_dual_optimizers_are_compared(
    module: ModuleType,
    real_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    space, setting, fields = dual_optimizers.SETTINGS["Ped2 UT L3"]
    short = {"steps": 2, "report_every": 2, "data.frame_size": 32, "data.max_clips": 4}
    few = (space, setting, fields | short)
    monkeypatch.setitem(dual_optimizers.SETTINGS, "Ped2 UT L3", few)
    words = ["--only", "Ped2 UT L3", "--seeds", "1", "--store", str(tmp_path / "store")]
    monkeypatch.setattr(sys, "argv", ["", *words])
    module.main()
    assert json.loads(capsys.readouterr().out)["benchmark"] == module.__name__.split(".")[-1]


@pytest.mark.slow
def test_leads_runs(real_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "leads.json"
    words = ["--only", "H1", "--seeds", "2", "--most-steps", "2", "--out", str(out)]
    words += ["--store", str(tmp_path / "store"), "--set", f"data.folder={real_data / 'ped2'}"]
    words += ["--set", "data.frame_size=32", "--set", "data.max_clips=4"]
    subprocess.run([sys.executable, "-m", "benchmarks.leads", *words], cwd=ROOT, check=True)
    assert list(json.loads(out.read_text("utf-8"))) == ["H1"]


@pytest.mark.slow
def test_anytime_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its command with the first networks of every method: they go on where they were."""
    out, figures = tmp_path / "anytime.json", tmp_path / "figures"
    whole = anytime.SETTINGS["photographs_ut"]
    first = {network.method: network.name for network in reversed(whole.networks)}
    kept = {*first.values(), *(network.of for network in whole.networks)}
    few = replace(whole, networks=[n for n in whole.networks if n.name in kept], pilots=[])
    monkeypatch.setitem(anytime.SETTINGS, "photographs_ut", few)  # type: ignore[arg-type]
    short = "data.frame_size=24,data.max_clips=4,steps=8,report_every=8,shifts=[],eval_draws=1"
    words = ["--only", "photographs_ut", "--seeds", "2", "--kept", str(tmp_path / "kept")]
    words += ["--set", short, "--out", str(out), "--draw", str(figures)]
    monkeypatch.setattr(sys, "argv", ["anytime", *words])
    anytime.main()
    found = json.loads(out.read_text("utf-8"))["photographs_ut"]
    assert len(found["seeds"]) == 2
    assert (figures / "photographs_ut.svg").stat().st_size > 0
    out.unlink()
    anytime.main()
    assert json.loads(out.read_text("utf-8"))["photographs_ut"] == found
    monkeypatch.setattr(sys, "argv", ["anytime", *words, "--set", "steps=9,report_every=9"])
    with pytest.raises(SystemExit, match="is of other networks or other options"):
        anytime.main()


@pytest.mark.slow
def test_paper_words_runs(real_data: Path, tmp_path: Path) -> None:
    """Three epochs of one clip: a warm-up, then restarts of the slacks."""
    out, folder = tmp_path / "paper_words.json", real_data / "ped2"
    short = "data.max_clips=2,data.frame_size=48,data.patch_size=8,data.frames=4,eval_windows=2"
    short += ",batch_size=400,steps=9,report_every=3"
    words = ["--only", "ut_search", "--kept", str(tmp_path / "kept.jsonl"), "--out", str(out)]
    words += ["--set", f"data.folder={folder},{short}"]
    subprocess.run([sys.executable, "-m", "benchmarks.paper_words", *words], cwd=ROOT, check=True)
    (part,) = json.loads(out.read_text("utf-8")).values()
    arms = [pair[arm] for row in part["rows"].values() for pair in row["pairs"] for arm in ARMS]
    assert {arm["status"] for arm in arms} == {"finished"}, arms[0]["reason"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "data", "elsewhere"),
    [("imdb_ut", "aclImdb", ["16 tokens"]), ("mnli_minilm", "mnli", text_shifts.GENRES)],
)
def test_text_shifts_runs(
    name: str,
    data: str,
    elsewhere: Sequence[str],
    real_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Scored at other lengths, and on other genres of MNLI than the one that is trained on."""
    out, setting = tmp_path / "anytime.json", text_shifts.SETTINGS[name]
    few = replace(setting, base=setting.base.with_fields({"model.layers": 3}))
    monkeypatch.setitem(text_shifts.SETTINGS, name, few)  # type: ignore[arg-type]
    short = "steps=2,report_every=2,batch_size=4,eval_windows=2,data.max_items=40"
    short += f",data.max_length={LONGEST},model.checkpoint={checkpoint_in(tmp_path / 'encoder')}"
    words = ["--only", name, "--seeds", "2", "--out", str(out), "--set", short]
    words += ["--store", str(tmp_path / "store"), "--data", str(real_data / data)]
    monkeypatch.setattr(sys, "argv", ["text_shifts", *words])
    text_shifts.main()
    found = json.loads(out.read_text("utf-8"))[name]
    assert list(found["by_seed"]) == ["7000", "7001"]
    conditions = found["by_seed"]["7000"]["plain"]["conditions"]
    assert {"train gamma", *elsewhere} < set(conditions)
    tests = found["tested"]["plain"]
    assert {of["condition"] for of in tests} == set(conditions)


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_A_DECODER)
def test_a_benchmark_of_a_decoder_runs(name: str, tmp_path: Path) -> None:
    from tests.support.data.instruction_runs import rows, write_alpaca
    from trainables.datasets.text.small_decoder import pretrain, write_small_decoder

    data, decoder = write_alpaca(tmp_path / "alpaca", 400), tmp_path / "decoder"
    texts = [text for row in rows() for text in row.values()]
    write_small_decoder(decoder, texts, layers=4, width=32, words=300, positions=1024)
    pretrain(decoder, texts * 10, epochs=1)
    words = ["--data", str(data), "--checkpoint", str(decoder)]
    if name == "estimated_feasibility":
        words += ["--store", str(tmp_path / "store"), "--steps", "2", "--seed", "0"]
    assert ran(name, *words)["benchmark"] == name
