"""Cost of one pair to a driver, in sweeps of 1,000 and of 10,000 pairs.

Measured are time, storage requests and memory.

    python -m benchmarks.scale [--small N] [--large N] [--stores local,s3] [--untracked] [--tune N]
                               [--out FILE]

FILE is written anew every minute: a run that is cut short leaves what it had, the sweep that was
under way included (what is missing can be measured alone: ``--stores s3 --tune 0``). --untracked
leaves MLflow out, which takes most of the time.

200 simulated workers put what real arms put (checkpoints, growing records, a final one) and train
nothing. They share a process with the driver, so that its own part of a pair is told, too: its
thread's time beside them, and all processor time but that of their thread. The rest is real: plan,
search (TPE, 50 settings), coordinator, the store (a folder, and S3 as moto imitates it), tracking
into SQLite by a process of its own, whose processor time and memory are told apart. Each sweep runs
in a process of its own, from its first arm until MLflow has its last row, and is then started again
when all is done.
Small sweeps run before and after the large one; allowed are 1.5 times their time and their storage
requests per pair, and 20 KB of memory a pair: how far the process grows after its first 200 pairs,
at its peak, the summary at the end included. Requests are HTTP requests for S3; for a folder they
are objects that the driver and the workers touch, not those that the tracker reads.

Then real arms of two steps on Ray Tune with 4 workers, tracked as above: the last quarter's time,
and objects touched by the driver, over the second one's, and the memory of the driver process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.request import Request, urlopen

from benchmarks.imitated.arms import SETTINGS, definition, train
from sweep.executors.executor import Executor, Where
from sweep.results.best import best_entries
from sweep.results.sweep_view import load_sweep
from sweep.run.coordinator import Coordinator
from sweep.run.events import NOBODY, Observer
from sweep.run.run_sweep import run_sweep
from sweep.study.arms import Arm
from sweep.study.definition import Definition, put_definition
from sweep.tracking import sources
from sweep.tracking.client import run_ids
from sweep.tracking.process import TrackerProcess
from sweep.tracking.writer import BackgroundTracker
from trainables.plain import Json
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.records.stored_files import StoredFiles

T = TypeVar("T")
Keep = Callable[[dict[str, Json]], None]  # told of what is known so far
EVERY_S = 60.0  # between two looks at a sweep that runs
WARM = 200  # pairs before memory is first looked at: libraries are loaded, caches are filled
ALLOWED = {"time": 1.5, "requests": 1.5, "kb_per_pair": 20.0}
TUNE_WORKERS = 4


# --- one sweep, in a process of its own -----------------------------------------------------------


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """What this process does to objects while the block runs: reads, writes, listings, ..."""
    counts: Counter[str] = Counter()
    lock, plain = threading.Lock(), StoredFiles._try

    def counting(self: StoredFiles, what: str, action: Callable[[], T]) -> T:
        with lock:
            counts[what.partition(" ")[0]] += 1
        return plain(self, what, action)

    StoredFiles._try = counting  # type: ignore[method-assign]
    try:
        yield counts
    finally:
        StoredFiles._try = plain  # type: ignore[method-assign]


def rss_kb() -> float:
    """Memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


def database(folder: Path) -> str:
    """Where MLflow keeps the sweep."""
    return f"sqlite:///{folder}/mlflow.db"


def drive(
    objects: ObjectStore,
    folder: Path,
    asked: Definition,
    counts: Counter[str],
    *,
    is_tracked: bool = True,
) -> dict[str, float]:
    """A driver's work from the first arm until MLflow has everything; what it took.

    Prints where it stands every minute, as a line of JSON.
    """
    warm_kb = 0.0

    def tick(final: int) -> None:
        nonlocal warm_kb
        if final == WARM:
            warm_kb = rss_kb()

    began, cpu_began = time.perf_counter(), time.process_time()
    uri = database(folder)
    tracker = TrackerProcess(uri, objects, asked, "")
    background = BackgroundTracker(tracker.send, uri, asked.name)
    observer = Observer(*sources.listeners(background.offer)) if is_tracked else NOBODY
    coordinator = Coordinator(objects, asked, observer=observer)

    def look() -> None:
        while not over.wait(EVERY_S):
            seen = {
                "s": time.perf_counter() - began,
                "arms_final": coordinator.plan.arms_done,
                "arms_behind_in_mlflow": len(background.behind()),
                "objects_touched": sum(list(counts.values())),
                "kb": rss_kb(),
            }
            print(json.dumps({"so_far": seen}), flush=True)

    over = threading.Event()
    threading.Thread(target=look, daemon=True).start()
    coordinator.start()
    workers = train(coordinator, ArmStore(objects, driver=coordinator.runs.driver), tick)
    in_loop_s = time.perf_counter() - began
    assert coordinator.summary().exit_code == 0, coordinator.summary().problems[:3]
    assert not background.close(24 * 3600)
    over.set()
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    tracker.close()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)  # the tracker's processes, up to now
    return {
        "s": took_s,
        "cpu_s": cpu_s,
        "loop_s": in_loop_s,
        "driver_s": in_loop_s - workers.s,
        "driver_cpu_s": cpu_s - workers.cpu_s,
        "tracker_cpu_s": ended.ru_utime + ended.ru_stime,
        "tracker_peak_kb": ended.ru_maxrss,
        "warm_kb": warm_kb,
        "peak_kb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


def one_sweep(
    root: str, folder: Path, pairs: int, settings: int, *, is_tracked: bool = True
) -> dict[str, Json]:
    """Run it, summarise it, and start it again when all is done."""
    objects = ObjectStore(root)
    with counted() as counts:
        asked = put_definition(objects, definition(pairs, settings))
        first = drive(objects, folder, asked, counts, is_tracked=is_tracked)
    pairs = asked.space.n_proposals * settings
    began = time.perf_counter()
    winners = sum(entry["winner"] for entry in best_entries(load_sweep(objects, asked.name), {}))
    summary_s = time.perf_counter() - began
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def grown_kb(now_kb: float) -> float | None:  # per pair; None in sweeps too small to tell
        return (now_kb - first["warm_kb"]) / (pairs - WARM) if pairs > 2 * WARM else None

    with counted() as counts_again:
        again = drive(objects, folder, asked, counts_again, is_tracked=is_tracked)
    if is_tracked:
        assert len(run_ids(database(folder), asked.name)) == pairs + settings, "a run per arm"
    return {
        "pairs": pairs,
        "is_tracked": is_tracked,
        "winners": winners,
        "ms_per_pair": 1e3 * first["s"] / pairs,
        "cpu_ms_per_pair": 1e3 * first["cpu_s"] / pairs,
        "ms_per_pair_without_tracking": 1e3 * first["loop_s"] / pairs,
        "driver_ms_per_pair": 1e3 * first["driver_s"] / pairs,
        "driver_cpu_ms_per_pair": 1e3 * first["driver_cpu_s"] / pairs,
        "tracker_cpu_ms_per_pair": 1e3 * first["tracker_cpu_s"] / pairs,
        "tracker_peak_kb": first["tracker_peak_kb"],
        "objects_touched_per_pair": {name: count / pairs for name, count in sorted(counts.items())},
        "kb_per_pair": grown_kb(first["peak_kb"]),
        "kb_per_pair_with_summary": grown_kb(peak_kb),
        "summary_ms_per_pair": 1e3 * summary_s / pairs,
        "starting_again_ms_per_pair": 1e3 * again["s"] / pairs,
        "starting_again_objects_per_pair": sum(counts_again.values()) / pairs,
    }


# --- S3 on loopback -------------------------------------------------------------------------------

KEYS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def s3_server() -> Iterator[int]:
    """moto's S3, counting, in a process of its own, with a bucket; yields its port."""
    server = Path(__file__).parent / "imitated/s3.py"
    with subprocess.Popen(
        [sys.executable, str(server)], stdout=subprocess.PIPE, env=os.environ | KEYS, text=True
    ) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            put = Request(f"http://127.0.0.1:{port}/bucket", method="PUT")
            with urlopen(put, timeout=60):
                yield port
        finally:
            process.kill()


def requests_served(port: int) -> int:
    """HTTP requests since the server began."""
    with urlopen(f"http://127.0.0.1:{port}/requests-served", timeout=60) as reply:
        return int(reply.read())


# --- comparison -----------------------------------------------------------------------------------


def measured(
    kind: str,
    pairs: int,
    settings: int = SETTINGS,
    keep: Keep = lambda found: None,
    *,
    is_tracked: bool = True,
) -> dict[str, Json]:
    """One sweep in a child process, on a store of its own; ``keep`` hears where it stands."""
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        if kind == "local":
            return _child((f"{folder}/root", folder), pairs, settings, keep, is_tracked)
        with s3_server() as port:
            root = f"s3://bucket/root?endpoint_override=127.0.0.1:{port}&scheme=http"
            before = requests_served(port)
            there = (f"{root}&region=us-east-1", folder)
            found = _child(there, pairs, settings, keep, is_tracked)
            # starting again and the summary included, which the others are too
            found["http_requests_per_pair"] = (requests_served(port) - before) / found["pairs"]
            return found


def _child(
    there: tuple[str, str], pairs: int, settings: int, keep: Keep, is_tracked: bool
) -> dict[str, Json]:
    command = [sys.executable, "-m", "benchmarks.scale", "--one", *there, str(pairs), str(settings)]
    command += [] if is_tracked else ["--untracked"]
    place = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, (place, os.environ.get("PYTHONPATH"))))
    found: dict[str, Json] = {"pairs": pairs, "minutes": []}
    with subprocess.Popen(
        command, env=os.environ | KEYS | {"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                said = json.loads(line)
                if "so_far" in said:
                    found["minutes"].append(said["so_far"])
                    keep(found)
                else:
                    found |= said
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise SystemExit(f"the sweep of {pairs} pairs ended with exit code {process.returncode}")
    print(f"{pairs} pairs: {found['ms_per_pair']:.1f} ms a pair", file=sys.stderr)
    return found


def compared(
    kind: str,
    small: int,
    large: int,
    settings: int = SETTINGS,
    keep: Keep = lambda found: None,
    *,
    is_tracked: bool = True,
) -> dict[str, Json]:
    """Small, large, small: the large one over the mean of the small ones."""
    sweeps: list[dict[str, Json]] = []

    def under_way(so_far: dict[str, Json]) -> None:
        keep(judged([*sweeps, so_far]))

    for pairs in (small, large, small):
        sweeps.append(measured(kind, pairs, settings, under_way, is_tracked=is_tracked))
        keep(judged(sweeps))
    return judged(sweeps)


def judged(sweeps: Sequence[dict[str, Json]]) -> dict[str, Json]:
    """The second sweep over the mean of the others, as far as they are whole."""
    small = [sweep for sweep in sweeps if "ms_per_pair" in sweep]
    if len(small) < 2:
        return {"sweeps": list(sweeps)}
    big = small.pop(1)

    def over(cost: Callable[[dict[str, Json]], float]) -> float:
        return cost(big) * len(small) / sum(map(cost, small))

    ratios = {
        "time": over(lambda found: float(found["ms_per_pair"])),
        "cpu_time": over(lambda found: float(found["cpu_ms_per_pair"])),
        "requests": over(requests_per_pair),
        "starting_again": over(lambda found: float(found["starting_again_ms_per_pair"])),
    }
    kb = big["kb_per_pair_with_summary"]
    within = [ratios[what] <= ALLOWED[what] for what in ("time", "requests")]
    return {
        "sweeps": list(sweeps),
        "ratios": ratios,
        "kb_per_pair": kb,
        "is_within": all(within) and kb is not None and kb <= ALLOWED["kb_per_pair"],
    }


def requests_per_pair(found: dict[str, Json]) -> float:
    """HTTP requests where they were counted, else objects touched."""
    touched = sum(found["objects_touched_per_pair"].values())
    return float(found.get("http_requests_per_pair", touched))


# --- Ray Tune -------------------------------------------------------------------------------------


def on_tune(
    pairs: int, keep: Keep = lambda found: None, *, where: Where = "local"
) -> dict[str, Json]:
    """Real arms of two steps on a Ray cluster of this machine."""
    settings = max(1, pairs // 50)
    small = {"data.frame_size": 16, "data.patch_size": 4, "steps": 2, "report_every": 2}
    small |= {"batch_size": 4, "eval_windows": 1, "eval_draws": 1}
    space = definition(pairs, settings).space
    space = replace(space, base=space.base.with_fields(small))
    grown: list[tuple[float, float, int]] = []  # seconds, KB, objects touched, at final arms
    with tempfile.TemporaryDirectory(prefix="scale-") as folder, counted() as counts:
        objects = ObjectStore(f"{folder}/root")
        asked = put_definition(objects, Definition("scale", space))
        uri = database(Path(folder))
        tracker = TrackerProcess(uri, objects, asked, "")
        background = BackgroundTracker(tracker.send, uri, asked.name)
        told, on_proposal = sources.listeners(background.offer)

        def on_record(arm: Arm, is_final: bool) -> None:
            told(arm, is_final)
            if is_final:
                grown.append((time.monotonic(), rss_kb(), sum(counts.values())))
                if len(grown) % WARM == 0:
                    keep({"arms_final": len(grown), "s": grown[-1][0] - grown[0][0]})

        observer = Observer(on_record, on_proposal)
        summary = run_sweep(
            objects, asked, Executor(where, TUNE_WORKERS), display=False, observer=observer
        )
        behind = background.close(3600)
        tracker.close()
        assert summary.exit_code == 0, summary
        assert not behind, behind[:3]
    quarter = len(grown) // 4

    def spent(since: int) -> tuple[float, float]:  # seconds and objects touched, for an arm
        before, after = grown[since], grown[since + quarter]
        return (after[0] - before[0]) / quarter, (after[2] - before[2]) / quarter

    earlier, later = spent(quarter), spent(len(grown) - 1 - quarter)  # the first one starts workers
    ratios = {"time": later[0] / earlier[0], "requests": later[1] / earlier[1]}
    kb = (grown[-1][1] - grown[quarter][1]) / (len(grown) - 1 - quarter) * len(grown) / pairs
    return {
        "pairs": pairs,
        "workers": TUNE_WORKERS,
        "s_and_objects_per_arm": {"second_quarter": earlier, "last": later},
        "ratios": ratios,
        "kb_per_pair": kb,
        "is_within": max(ratios.values()) <= ALLOWED["time"] and kb <= ALLOWED["kb_per_pair"],
    }


def main() -> None:
    """Measure, print the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--small", type=int, default=1_000)
    parser.add_argument("--large", type=int, default=10_000)
    parser.add_argument("--settings", type=int, default=SETTINGS)
    parser.add_argument("--stores", default="local,s3", help="local, s3, both, or an empty string")
    parser.add_argument("--untracked", action="store_true", help="without MLflow, except on Tune")
    parser.add_argument("--tune", type=int, default=500, help="pairs on Ray Tune; 0 for none")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="keep the JSON here, from the first minute on")
    options = parser.parse_args()
    if options.one:
        root, folder, pairs, settings = options.one
        is_tracked = not options.untracked
        found = one_sweep(root, Path(folder), int(pairs), int(settings), is_tracked=is_tracked)
        print(json.dumps(found))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # so that children end
    result: dict[str, Json] = {"benchmark": "scale", "allowed": ALLOWED}

    def keep(what: str, found: dict[str, Json]) -> None:
        result[what] = found
        if options.out is not None:
            aside = options.out.with_name(f".{options.out.name}.tmp")
            aside.write_text(json.dumps(result, indent=2) + "\n")
            aside.replace(options.out)

    sizes = (options.small, options.large, options.settings)
    for kind in filter(None, options.stores.split(",")):
        tell = partial(keep, kind)
        keep(kind, compared(kind, *sizes, tell, is_tracked=not options.untracked))
    if options.tune:
        keep("tune", on_tune(options.tune, partial(keep, "tune")))
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
