"""Arms of benchmarks, trained side by side and kept: a file of JSON lines is their only store."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import as_completed
from pathlib import Path

from benchmarks.workers import spawned
from trainables.arm_run import ArmRun
from trainables.config.arm import ArmConfig
from trainables.plain import Json, finite
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


def record_of(plain: Json) -> Json:
    """The final record of an arm, as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        run = ArmRun(ArmConfig.from_json(plain), ArmStore(ObjectStore(folder)))
        while not run.record.is_final:
            run.advance()
        return run.record.to_json()


def trained(
    configs: Iterable[ArmConfig],
    kept: Path,
    entry: Callable[[ArmRecord], dict[str, Json]],
    *,
    workers: int,
    record: Callable[[Json], Json] = record_of,
) -> dict[str, dict[str, Json]]:
    """By signature, what each arm came to; those that the file holds are not trained again.

    Args:
        configs: the arms; one that is named twice is trained once.
        kept: JSON lines, written to after every arm: a benchmark that is ended goes on.
        entry: what is kept of a final record.
        workers: how many train at a time, each in a process of its own.
        record: trains an arm, by default as the product does; must be importable.
    """
    found = {one["signature"]: one for one in lines_of(kept)}
    wanted = {config.signature(): config for config in configs}
    missing = [config for signature, config in wanted.items() if signature not in found]
    with spawned(workers) as pool:
        running = [pool.submit(record, config.to_json()) for config in missing]
        for done in as_completed(running):
            final = ArmRecord.from_json(done.result())
            one = {"signature": final.config.signature(), **entry(final)}
            found[one["signature"]] = one
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps(one) + "\n")
    return {signature: found[signature] for signature in wanted}


def lines_of(kept: Path) -> list[Json]:
    """What a file of JSON lines holds, but for a last line that a kill has torn."""
    if not kept.exists():
        return []
    text = kept.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        kept.write_text(whole, encoding="utf-8")
    return [json.loads(line) for line in whole.splitlines()]


def put(path: Path, name: str, part: Json, *, decimals: int = 5) -> None:
    """Put a part's results into a file of several, whole and at once; null for what is no number.

    Args:
        path: JSON, an object of which each part has a line.
        name: the part that is new, or takes the place of one of before.
        part: its results.
        decimals: what floats are rounded to.
    """
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    text = json.dumps(finite({**results, name: part}))
    short = json.loads(text, parse_float=lambda number: round(float(number), decimals))
    lines = [f'"{key}": {json.dumps(value)}' for key, value in short.items()]
    half = path.with_suffix(".part")
    half.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    os.replace(half, path)
