"""Folder of an export: written whole, replaced only by one that holds as much."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from sweep.results.provenance import Manifest, Subject
from sweep.study.advice import counted
from trainables.errors import Misuse, StoreError, list_first
from trainables.machine import file_locks
from trainables.machine.atomic_files import write_durably
from trainables.machine.file_locks import NoLocks
from trainables.plain import Json

EXPORT = "descent-sweep export"  # the kind that its manifest names
MANIFEST = "manifest.json"
WAIT_S = 60.0  # for another export into the same folder
LOCK = ".export-lock.tmp"  # of a folder that is written to
# Keys of an earlier manifest by which it may be replaced; oddities in others are no reason not to.
_DECIDING = ("kind", "sweep", "files", "complete", "arms", "pairs")
_SHOWN_LOST = 4  # files that a message names
_STAGING = ".export-*.tmp"  # what is being written; left over where an export was killed


@dataclass(frozen=True, kw_only=True)
class ExportManifest(Manifest):
    """Manifest of an export: provenance, and every file with its checksum."""

    kind: str = EXPORT
    format: int = 1
    files: Mapping[str, str | None] = field(default_factory=dict)  # None: of an earlier export
    complete: bool = True

    @property
    def names(self) -> set[str]:
        """Names of its files that are in its folder."""
        names = {str(PurePosixPath(name)) for name in self.files}
        return names.difference(outside(names))

    @property
    def needed(self) -> set[str]:
        """Files that any export of the same arms has: none, of one that was not completed.

        Those that are there with --all alone are not needed.
        """
        lost = [name for name, pair in self.pairs.items() if pair and not pair.winner]
        return self.names - {f"configs/{one}.json" for one in lost} if self.complete else set()


def outside(names: Iterable[str]) -> list[str]:
    """Names of files that are not below their folder."""
    return [name for name in names if name.startswith("/") or ".." in PurePosixPath(name).parts]


def text_of(plain: Json) -> str:
    """JSON as exports write it."""
    return json.dumps(plain, indent=1, sort_keys=True, allow_nan=False) + "\n"


def write_files(
    out: Path, sweep: str, files: Mapping[str, str], *, replace: bool = False
) -> list[str]:
    """Write an export whole and return the names of its files.

    A new folder appears whole. While the files of an earlier export are replaced its manifest says
    ``"complete": false``: one that was killed is known, and the next one completes it.

    Args:
        out: a folder that does not exist, is empty, or holds an earlier export of this sweep.
        sweep: its name.
        files: every file by name, the manifest among them.
        replace: an earlier export goes also where it holds more than this one.
    """
    manifest = _manifest_of(files.get(MANIFEST, ""))
    if manifest is None or outside(files):
        raise StoreError(
            f"this is no export of {sweep}: {', '.join(outside(files)) or 'no manifest'}."
        )
    earlier = earlier_export(out, sweep)
    if not replace:
        _refuse_less(out, manifest, earlier, files)
    place = out if out.exists() else out.parent
    try:
        with _staged(place, "" if place == out else f".{out.name}") as staging:
            for name, text in files.items():
                write_durably(staging / name, text.encode())
            if place == out or not _renamed(staging, out):
                with file_locks.held(out / LOCK, WAIT_S):
                    now = earlier_export(out, sweep)
                    if not replace:  # another export may have come between
                        _refuse_less(out, manifest, now, files)
                    _replace(out, staging, manifest, set(files), earlier.names | now.names)
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
    return sorted(files)


def earlier_export(out: Path, sweep: str) -> ExportManifest:
    """The export of this sweep in a folder, one without files if it is new; else Misuse."""
    if not out.exists():
        return ExportManifest(sweep=sweep)
    if not out.is_dir():
        raise Misuse(f"--out must be a folder, got the file {out}. Give a new folder.")
    if not any(path for path in out.iterdir() if not path.match(_STAGING)):
        return ExportManifest(sweep=sweep)
    there = None
    with suppress(OSError, ValueError):
        there = _manifest_of((out / MANIFEST).read_text(encoding="utf-8"), _DECIDING)
    if there is None:
        raise Misuse(
            f"the folder {out} holds files that no export wrote; nothing was changed. "
            "Give a new or an empty folder with --out."
        )
    if there.sweep != sweep:
        raise Misuse(
            f"the folder {out} holds the export of sweep {there.sweep!r}, not of {sweep!r}; "
            "nothing was changed. Give another folder with --out."
        )
    return there


def _manifest_of(text: str, keys: Collection[str] | None = None) -> ExportManifest | None:
    """The manifest in a file, or these keys of it alone; None where it is none of an export."""
    with suppress(ValueError, TypeError, AttributeError):
        plain = json.loads(text)
        if plain.get("kind") == EXPORT:  # a folder of the user's own has no kind, or another
            there = {k: v for k, v in plain.items() if v is not None and (not keys or k in keys)}
            return ExportManifest.from_json(there)
    return None


def _refuse_less(
    out: Path, manifest: ExportManifest, earlier: ExportManifest, files: Mapping[str, str]
) -> None:
    lost = sorted(earlier.needed - files.keys())
    refuse_less("export", out, earlier, manifest, lost)


def refuse_less(
    kind: str, out: Path, earlier: Subject, this: Subject, lost: Sequence[str] = ()
) -> None:
    """Raise Misuse if an export or a report would replace one of more arms, or lose files."""
    more = []
    there, final = earlier.arms.final, this.arms.final
    if final < there:
        more.append(f"the results of {counted(there, 'arm')}, where this one has {final}")
    if lost:
        more.append(f"{list_first(lost, _SHOWN_LOST)}, which this one lacks")
    if more:
        raise Misuse(
            f"the folder {out} holds a fuller {kind} of this sweep: {'; '.join(more)}. Nothing was "
            "changed. Give another folder with --out, or --replace to lose what it holds."
        )


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


def _replace(
    out: Path, staging: Path, manifest: ExportManifest, files: set[str], earlier: set[str]
) -> None:
    """Move the written files over those of an earlier export; the whole manifest comes last."""
    every = {**dict.fromkeys(earlier), **manifest.files}  # all that may be there until then
    begun = replace(manifest, files=every, complete=False)
    # By the staging folder, which the next export clears away after a kill.
    write_durably(staging / "begun.json", text_of(begun.to_json()).encode())
    os.replace(staging / "begun.json", out / MANIFEST)
    for name in files - {MANIFEST}:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(staging / name, out / name)
    for name in earlier - files:
        (out / name).unlink(missing_ok=True)
    os.replace(staging / MANIFEST, out / MANIFEST)
