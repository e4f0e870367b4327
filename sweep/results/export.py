"""Export for a paper: tables, configurations that re-run exactly, a manifest.

    tables/{results,layers,anytime,shifts,hyperparameters,frontier}.{csv,md,tex}
    tables/paper_{results,hyperparameters}.{csv,md,tex}     as the paper arranges them
    tables/tidy.csv             every number of the pairs shown, one a row, each seed alone
    tables/proposals.csv        every proposal on every seed
    answers.md                  what both arms of the pairs shown wrote, side by side
    answers/<setting>/          the same in AlpacaEval's fields, a file an arm and gamma
    configs/<setting>.json      the winner: a config per search seed, and what each arm came to
    manifest.json               provenance, and every file with its checksum

A function of the store alone: the same store exports the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from search_spaces.catalog import CONFIGURATION
from search_spaces.space import SearchSpace
from sweep.render.csv import to_csv
from sweep.render.latex import to_latex
from sweep.render.markdown import to_markdown
from sweep.render.table import Table
from sweep.results import provenance
from sweep.results.best import best_summaries
from sweep.results.facts import read_facts, shown_facts
from sweep.results.summary import SettingSummary
from sweep.results.sweep_view import SettingView, SweepView
from sweep.results.tables.answers import answer_files
from sweep.results.tables.anytime import anytime_table
from sweep.results.tables.columns import without_idle
from sweep.results.tables.frontier import frontier_table
from sweep.results.tables.hyperparameters import hyperparameters_table
from sweep.results.tables.layers import layers_table
from sweep.results.tables.paper_hyperparameters import paper_hyperparameters_table, trained_pairs
from sweep.results.tables.paper_results import paper_results_table
from sweep.results.tables.results import results_table
from sweep.results.tables.shifts import shifts_table
from sweep.study.advice import counted
from sweep.study.pairs import ReadRecord
from sweep.study.selection import is_selected
from trainables.config.arm import TRAINING_VERSION
from trainables.errors import Misuse, StoreError
from trainables.machine import file_locks
from trainables.machine.atomic_files import write_durably
from trainables.machine.file_locks import NoLocks
from trainables.plain import Json
from trainables.records.arm_record import ArmRecord

EXPORT = "descent-sweep export"  # what a manifest says it is
MANIFEST = "manifest.json"
WAIT_S = 60.0  # for another export into the same folder
LOCK = ".export-lock.tmp"  # of a folder that is written to
_SHOWN_LOST = 4  # files that a message names
_STAGING = ".export-*.tmp"  # what is being written; left over where an export was killed


def export(
    view: SweepView,
    run_ids: Mapping[str, str],
    out: Path,
    *,
    read: ReadRecord,
    everything: bool = False,
    beside_paper: bool = False,
    instead: Mapping[str, str] | None = None,
    replace: bool = False,
) -> list[str]:
    """Write the export of a sweep below ``out`` and return the names of its files.

    Args:
        view: the sweep.
        run_ids: MLflow run by signature, as far as they are known.
        out: a folder that does not exist, is empty, or holds an earlier export of this sweep.
        read: how the record of a signature is read.
        everything: also configurations of the closest pairs where there is no winner.
        beside_paper: with the published numbers, in the tables that are arranged as the paper's.
        instead: files by name, in the place of tables and configurations: of a confirmation.
        replace: an earlier export goes also where it holds more than this one.
    """
    earlier = _earlier_export(out, view.definition.name)  # refused before the work
    content = instead
    if content is None:
        tables = sweep_tables(view.definition.space, best_summaries(view, run_ids), beside_paper)
        content = _contents(view, tables, read, everything=everything)
    files = {**content, MANIFEST: _manifest(view, run_ids, content)}
    _write(out, files, earlier, replace=replace)
    return sorted(files)


def write_files(
    out: Path, sweep: str, files: Mapping[str, str], *, replace: bool = False
) -> list[str]:
    """Write an export that was made elsewhere as ``export`` would; the names of its files.

    Args:
        out: as for ``export``.
        sweep: its name.
        files: every file by name, the manifest among them.
        replace: as for ``export``.
    """
    outside = [n for n in files if n.startswith("/") or ".." in PurePosixPath(n).parts]
    if outside or MANIFEST not in files:
        raise StoreError(f"this is no export of {sweep}: {', '.join(outside) or 'no manifest'}.")
    _write(out, files, _earlier_export(out, sweep), replace=replace)
    return sorted(files)


def configuration(view: SweepView, setting: SettingView) -> dict[str, Json]:
    """A configuration from which ``sweep run`` trains the setting's pairs again and compares."""
    shown = setting.chosen.shown
    assert shown is not None  # asked for only where there is a pair
    space = view.definition.space
    baseline = space.run(setting.setting, {}, seed=space.search_seeds[0])
    primal = [name for name in shown.point if not name.startswith("constraint.")]
    records = [r for p in shown.pairs for r in (p.constrained, p.unconstrained) if r is not None]
    return {
        "kind": CONFIGURATION,
        "format": 1,
        "sweep": view.definition.name,
        "space": space.name,
        "setting": setting.setting.name,
        "proposal": shown.number,
        "winner": setting.chosen.winner is not None,
        "why": setting.chosen.why or None,
        "tolerance": space.tolerance,
        "selection_biased": is_selected(space, setting.setting),
        # what the unconstrained arm has where the point sets fields of the primal run
        "baseline": {name: baseline.value_of(name) for name in primal},
        "training_version": TRAINING_VERSION,
        "environments": provenance.distinct_environments(records),
        "runs": {
            str(pair.constrained.config.seed): {
                "config": pair.constrained.config.to_json(),
                "constrained": expected(pair.constrained),
                "unconstrained": None
                if pair.unconstrained is None
                else expected(pair.unconstrained),
            }
            for pair in shown.pairs
        },
    }


def expected(record: ArmRecord) -> dict[str, Json]:
    """The results of an arm, with which it is compared when it is trained again."""
    plain = record.to_json()
    return {name: plain[name] for name in ("signature", "status", "evaluation", "environment")}


def sweep_tables(
    space: SearchSpace, summaries: Sequence[SettingSummary], beside_paper: bool = False
) -> list[Table]:
    """The tables of a search that have a short form."""
    return [
        results_table(space, summaries),
        layers_table(space, summaries),
        shifts_table(space, summaries),
        hyperparameters_table(space, summaries),
        frontier_table(summaries),
        paper_results_table(space, summaries, beside_paper=beside_paper),
        paper_hyperparameters_table(
            space, trained_pairs(space, summaries), beside_paper=beside_paper
        ),
    ]


def _contents(
    view: SweepView, tables: Sequence[Table], read: ReadRecord, *, everything: bool
) -> dict[str, str]:
    """Every file by name but the manifest."""
    space = view.definition.space
    files: dict[str, str] = {}
    for table in (*tables, anytime_table(view)):
        files |= table_files(table, view.definition.name)
    tidy = [fact._asdict() for one in view.settings for fact in shown_facts(one)]
    proposals = without_idle(space, read_facts(view, read).proposals)
    for name, rows in (("tidy", tidy), ("proposals", proposals)):
        files[f"tables/{name}.csv"] = to_csv(Table(name, "", rows, [], []))
    for setting in view.settings:
        wanted = setting.chosen.winner or (everything and setting.chosen.shown)
        if wanted:
            plain = configuration(view, setting)
            files[f"configs/{setting.setting.name}.json"] = text_of(plain)
    return files | answer_files(view)


def _manifest(view: SweepView, run_ids: Mapping[str, str], files: Mapping[str, str]) -> str:
    """Provenance, and every file with its checksum."""
    checksums = {n: hashlib.sha256(text.encode()).hexdigest() for n, text in files.items()}
    manifest = {"kind": EXPORT, "format": 1, **provenance.manifest(view, run_ids)}
    return text_of({**manifest, "files": checksums, "complete": True})


def table_files(table: Table, sweep: str) -> dict[str, str]:
    """A table in every format, by the names of its files."""
    return {
        f"tables/{table.name}.csv": to_csv(table),
        f"tables/{table.name}.md": to_markdown(table),
        f"tables/{table.name}.tex": to_latex(table, sweep),
    }


def text_of(plain: Json) -> str:
    """JSON as exports write it."""
    return json.dumps(plain, indent=1, sort_keys=True, allow_nan=False) + "\n"


@dataclass(frozen=True)
class _Earlier:
    """An export that is in the folder."""

    files: frozenset[str] = frozenset()
    needed: frozenset[str] = frozenset()  # of these, what another one of the same arms has, too
    final_arms: int = 0


def _earlier_export(out: Path, sweep: str) -> _Earlier:
    """The files of an earlier export of this sweep; Misuse for a foreign folder."""
    if not out.exists():
        return _Earlier()
    if not out.is_dir():
        raise Misuse(f"--out must be a folder, got the file {out}. Give a new folder.")
    if not any(path for path in out.iterdir() if not path.match(_STAGING)):
        return _Earlier()
    try:
        there = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
        known = there["kind"] == EXPORT
    except (OSError, ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise Misuse(
            f"the folder {out} holds files that no export wrote; nothing was changed. "
            "Give a new or an empty folder with --out."
        )
    if there["sweep"] != sweep:
        raise Misuse(
            f"the folder {out} holds the export of sweep {there['sweep']!r}, not of {sweep!r}; "
            "nothing was changed. Give another folder with --out."
        )
    names = {str(PurePosixPath(name)) for name in there.get("files", {})}
    names = {n for n in names if not n.startswith("/") and ".." not in PurePosixPath(n).parts}
    return _Earlier(frozenset(names), frozenset(names - _of_all(there)), final_arms(there))


def _of_all(manifest: Mapping[str, Json]) -> set[str]:
    """Files that an export has with --all alone; every one, of an export that was not completed."""
    if not manifest.get("complete", True):
        return set(manifest["files"])
    pairs = manifest.get("pairs") or {}
    return {f"configs/{s}.json" for s, pair in pairs.items() if pair and not pair.get("winner")}


def final_arms(manifest: Mapping[str, Json]) -> int:
    """How many arms a manifest is of; 0 where it does not say it."""
    arms = manifest.get("arms")
    return int(arms.get("final", 0)) if isinstance(arms, dict) else 0


def _refuse_less(out: Path, files: Mapping[str, str], earlier: _Earlier) -> None:
    """Raise Misuse where the export in the folder holds more than the one that is to replace it."""
    lost = sorted(earlier.needed - files.keys())
    refuse_less("export", out, earlier.final_arms, final_arms(json.loads(files[MANIFEST])), lost)


def refuse_less(kind: str, out: Path, there: int, final: int, lost: Sequence[str] = ()) -> None:
    """Raise Misuse where an export or a report would replace one that holds more.

    Args:
        kind: what both are called.
        out: the folder.
        there: final arms of the one in it.
        final: those of the new one.
        lost: files that the new one lacks.
    """
    more = []
    if final < there:
        arms = counted(there, "arm")
        more.append(f"the results of {arms}, where this one has {final}")
    if lost:
        others = f" and {len(lost) - _SHOWN_LOST} more" * (len(lost) > _SHOWN_LOST)
        more.append(f"{', '.join(lost[:_SHOWN_LOST])}{others}, which this one lacks")
    if more:
        raise Misuse(
            f"the folder {out} holds a fuller {kind} of this sweep: {'; '.join(more)}. Nothing was "
            "changed. Give another folder with --out, or --replace to lose what it holds."
        )


def _write(out: Path, files: Mapping[str, str], there: _Earlier, *, replace: bool) -> None:
    """Write all files to one side first: a new folder appears whole, an earlier export is replaced.

    While files are replaced the manifest says ``"complete": false``: an export that was killed is
    known as one, and the next one completes it.
    """
    if not replace:
        _refuse_less(out, files, there)
    place = out if out.exists() else out.parent
    try:
        with _staged(place, "" if place == out else f".{out.name}") as staging:
            for name, text in files.items():
                write_durably(staging / name, text.encode())
            if place == out or not _renamed(staging, out):
                with file_locks.held(out / LOCK, WAIT_S):
                    now = _earlier_export(out, json.loads(files[MANIFEST])["sweep"])
                    if not replace:  # another export may have come between
                        _refuse_less(out, files, now)
                    _replace(out, staging, files, there.files | now.files)
    except BlockingIOError as error:
        raise StoreError(
            f"another export has been writing to {out} for {WAIT_S:.0f} s. Wait for its end, or "
            "give another folder with --out."
        ) from error
    except OSError as error:
        of_users = (PermissionError, NotADirectoryError, FileExistsError)
        kind = Misuse if isinstance(error, of_users) else StoreError
        raise kind(
            f"the export could not be written below {out}: {error}. Give another folder with --out."
        ) from error
    finally:
        for folder in (*out.parent.glob(f".{out.name}{_STAGING}"), *out.glob(_STAGING)):
            with suppress(OSError), _held(folder):  # else it is another's, who writes there now
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _staged(place: Path, prefix: str) -> Iterator[Path]:
    """A folder that is known as this export's while it lasts, and goes with it."""
    with ExitStack() as stack:
        while True:
            staging = place / f"{prefix}{_STAGING.replace('*', uuid.uuid4().hex)}"
            staging.mkdir(parents=True)
            try:
                stack.enter_context(_held(staging))
            except (BlockingIOError, FileNotFoundError):  # taken for a left-over, in this instant
                continue
            if staging.is_dir():
                break
        stack.callback(shutil.rmtree, staging, ignore_errors=True)
        yield staging


def _renamed(staging: Path, out: Path) -> bool:
    """True if the folder got its name; False where another export was first."""
    try:
        os.rename(staging, out)
    except OSError:
        if not out.is_dir():
            raise
        return False
    return True


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Have a folder known as in use, however this export ends; BlockingIOError: it is."""
    held = os.open(folder, os.O_RDONLY)
    try:
        with suppress(NoLocks):
            file_locks.lock(held)
        yield
    finally:
        os.close(held)


def _replace(out: Path, staging: Path, files: Mapping[str, str], earlier: Collection[str]) -> None:
    """Move the written files over those of an earlier export; the whole manifest comes last."""
    manifest = json.loads(files[MANIFEST])
    named = {**dict.fromkeys(earlier), **manifest["files"]}  # all that may be there until then
    begun = text_of({**manifest, "files": named, "complete": False})
    # By the staging folder, which the next export clears away after a kill.
    write_durably(staging / "begun.json", begun.encode())
    os.replace(staging / "begun.json", out / MANIFEST)
    for name in files.keys() - {MANIFEST}:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(staging / name, out / name)
    for name in set(earlier) - files.keys():
        (out / name).unlink(missing_ok=True)
    os.replace(staging / MANIFEST, out / MANIFEST)
