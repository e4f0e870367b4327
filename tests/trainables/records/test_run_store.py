"""Objects are whole or not there; final records stay; the newest whole checkpoint wins."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from tests.support.oracles import TINY
from tests.support.records import finished
from tests.support.sweeps import FEASIBLE
from trainables.errors import Misuse, StoreError
from trainables.records.arm_record import ArmRecord, Report
from trainables.records.arms import ArmStore
from trainables.records.evaluation import Answer
from trainables.records.objects import ObjectStore


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "root")


def record(status: str = "running") -> ArmRecord:
    return ArmRecord.from_json(
        {**ArmRecord(signature="s", config=TINY).to_json(), "status": status}
    )


def test_what_is_put_is_got(objects: ObjectStore) -> None:
    objects.put("a/b/c", b"content")
    assert objects.get("a/b/c") == b"content"
    assert objects.get("a/b/other") is None
    assert objects.names("a/b") == ["c"]
    assert objects.names("nowhere") == []


def test_a_truncated_or_changed_object_is_refused_by_name(objects: ObjectStore) -> None:
    objects.put("thing", b"x" * 100)
    path = Path(objects.root, "thing")
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[1:], b"y" + whole[1:], b""):
        path.write_bytes(damaged)
        with pytest.raises(StoreError, match=r"thing .* is damaged"):
            objects.get("thing")


def test_words_that_look_like_numbers_stay_words() -> None:
    record = finished(TINY, FEASIBLE)
    assert record.evaluation is not None
    record.reason, record.warnings = "nan", ["inf"]
    record.config = TINY.with_fields({"data.folder": "-inf"})
    record.evaluation = replace(
        record.evaluation,
        answers=[Answer(prompt="nan", reference="inf", gamma=0.2, written="-inf")],
        dev_units=["nan"],
        scores={**record.evaluation.scores, "0.40": math.nan},
    )
    read = ArmRecord.from_json(json.loads(json.dumps(record.to_json())))
    assert (read.reason, read.warnings) == ("nan", ["inf"])
    assert read.config == record.config
    assert read.evaluation is not None
    assert read.evaluation.answers == record.evaluation.answers
    assert read.evaluation.dev_units == ["nan"]
    assert math.isnan(read.evaluation.scores["0.40"])


@pytest.mark.parametrize(
    ("root", "below"),
    [
        ("s3://b/p", "s3://b/p/scratch/q"),
        ("s3://b/p/", "s3://b/p/scratch/q"),
        ("s3://b?region=x&scheme=http", "s3://b/scratch/q?region=x&scheme=http"),
        ("/odd?name", "/odd?name/scratch/q"),
    ],
)
def test_a_store_below_a_root_keeps_the_options_of_its_address(root: str, below: str) -> None:
    assert ObjectStore(root).below("scratch/q").root == below


def test_put_once_keeps_the_first(objects: ObjectStore) -> None:
    assert objects.put_once("thing", b"first") == b"first"
    assert objects.put_once("thing", b"second") == b"first"
    assert objects.get("thing") == b"first"


def test_two_writers_of_one_name_agree_on_a_whole_object(objects: ObjectStore) -> None:
    code = (
        "import sys; from trainables.records.objects import ObjectStore;"
        "o = ObjectStore(sys.argv[1]);"
        "[o.put('same', sys.argv[2].encode() * 5000) for _ in range(50)];"
        "print(o.put_once('once', sys.argv[2].encode()).decode())"
    )
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", code, objects.root, letter], stdout=subprocess.PIPE, text=True
        )
        for letter in "ab"
    ]
    agreed = {w.communicate(timeout=60)[0] for w in writers}
    assert len(agreed) == 1
    assert objects.get("same") in (b"a" * 5000, b"b" * 5000)


def test_a_write_that_fails_leaves_the_old_object_and_no_temporary_file(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects.put("thing", b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        objects.put("thing", b"new")
    assert objects.get("thing") == b"old"
    assert os.listdir(objects.root) == ["thing"]


def test_a_root_that_cannot_be_written_is_a_misuse(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Misuse, match=r"cannot be written .* --storage"):
        ObjectStore(tmp_path / "file" / "root").check_writable()


def test_json_keeps_numbers_that_json_lacks(objects: ObjectStore) -> None:
    store = ArmStore(objects)
    scalars, layers = {"train/loss": float("nan")}, {"losses": [float("inf"), 1.0]}
    report = Report(step=1, timestamp_ms=2, scalars=scalars, layers=layers)
    store.put_record(replace(record(), reports=[report]))
    back = store.record("s")
    assert back is not None
    assert str(back.reports[0].scalars["train/loss"]) == "nan"
    assert back.reports[0].layers["losses"] == [float("inf"), 1.0]


def test_a_final_record_is_not_replaced(objects: ObjectStore) -> None:
    store = ArmStore(objects)
    store.put_record(record())
    final = store.put_record(record("failed"))
    assert store.put_record(record("running")) == final
    assert store.record("s") == final


def when_first_synced(monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    """Once, a writer rests before its bytes are on the disk, and ``then`` happens meanwhile."""
    fsync = os.fsync

    def rests(file: int) -> None:
        monkeypatch.setattr(os, "fsync", fsync)
        then()
        fsync(file)

    monkeypatch.setattr(os, "fsync", rests)


@pytest.mark.parametrize("late", ["running", "failed"])
def test_a_writer_that_rests_between_look_and_write_replaces_no_final_record(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    store, other = ArmStore(objects), ArmStore(ObjectStore(objects.root))
    final = record("finished")
    when_first_synced(monkeypatch, lambda: other.put_record(final))
    store.put_record(record(late))
    assert store.record("s") == other.record("s") == final
    assert store.has_final("s")
    assert store.put_record(record(late)) == final
    assert objects.names("arms/s") == ["record.json"]


def test_a_reader_between_a_last_report_and_the_final_record_sees_one_of_them(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = ArmStore(objects), ArmStore(ObjectStore(objects.root))
    store.put_record(record())
    read = Path.read_bytes

    def arm_ends(path: Path) -> bytes:
        monkeypatch.setattr(Path, "read_bytes", read)
        with pytest.raises(FileNotFoundError):  # no final record yet
            read(path)
        other.put_record(record("finished"))
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_bytes", arm_ends)
    assert store.record("s") == record("finished")


def test_a_final_record_that_cannot_be_seen_yet_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS refuses a second one, and says for a while that there is none."""
    from trainables.records.retrying import RetryingStore

    monkeypatch.setattr("trainables.records.retrying.time.sleep", lambda seconds: None)
    store = ArmStore(RetryingStore(tmp_path))
    first = store.put_record(record("finished"))
    looks = [False, False]
    exists, read = Path.exists, Path.read_bytes

    def seen_late(path: Path) -> bool:
        return looks.pop() if looks and path.name == "record.json" else exists(path)

    def not_yet(path: Path) -> bytes:
        if looks and path.name == "record.json":
            raise FileNotFoundError
        return read(path)

    monkeypatch.setattr(Path, "exists", seen_late)
    monkeypatch.setattr(Path, "read_bytes", not_yet)
    assert store.put_record(record("failed")) == first
    assert not looks


def test_the_two_newest_checkpoints_are_kept_and_damaged_ones_passed_over(
    objects: ObjectStore,
) -> None:
    store = ArmStore(objects)
    for step in (10, 20, 30):
        store.put_checkpoint("s", step, str(step).encode())
    assert objects.names("arms/s") == ["checkpoint-00000020.pt", "checkpoint-00000030.pt"]
    assert store.newest_checkpoint("s") == (30, b"30")
    Path(objects.root, "arms/s/checkpoint-00000030.pt").write_bytes(b"torn")
    assert store.newest_checkpoint("s") == (20, b"20")
    store.drop_training("s")
    assert store.newest_checkpoint("s") is None


def test_new_checkpoints_stay_beside_damaged_newer_ones_until_training_has_passed_them(
    objects: ObjectStore,
) -> None:
    store = ArmStore(objects)
    for step in (10, 20, 30, 40):
        store.put_checkpoint("s", step, str(step).encode())
    store.put_checkpoint("s", 20, b"20")  # as if 30 and 40 were damaged before 10 and 20 had gone
    for step in (30, 40):
        Path(objects.root, f"arms/s/checkpoint-{step:08d}.pt").write_bytes(b"torn")
    store.put_checkpoint("s", 25, b"25")
    assert store.newest_checkpoint("s") == (25, b"25")
    store.put_checkpoint("s", 35, b"35")
    assert store.newest_checkpoint("s") == (35, b"35")
    store.put_checkpoint("s", 45, b"45")
    assert len(objects.names("arms/s")) == 2


def test_attempts_count_starts_since_the_last_newer_checkpoint(objects: ObjectStore) -> None:
    store = ArmStore(objects)
    assert [store.count_attempt("s", step) for step in (-1, -1, 100, 100, 200)] == [1, 2, 1, 2, 1]


def test_deaths_of_drivers_are_not_blamed_on_an_arm(objects: ObjectStore) -> None:
    """Five kills of drivers before the first checkpoint are not five deaths of a worker."""
    stores = [ArmStore(objects, driver=f"driver {n}") for n in range(7)]
    assert [store.count_attempt("s", -1) for store in stores] == [1] * 7
    assert [stores[-1].count_attempt("s", -1) for _ in range(5)] == [2, 3, 4, 5, 6]
    objects.put("arms/s/attempts.json", b'{"starts": 9, "resumed_from": 7}')  # an earlier version's
    assert stores[0].count_attempt("s", -1) == 1


def test_a_file_uri_is_a_remote_store_too(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    objects = ObjectStore(f"file://{tmp_path}/bucket")
    Path(tmp_path, "bucket/arms/s").mkdir(parents=True)
    objects.put("arms/s/record.json", b"1")
    assert objects.get("arms/s/record.json") == b"1"
    assert objects.put_once("arms/s/record.json", b"2") == b"1"
    assert objects.get("arms/s/none") is None
    assert objects.names("arms/s") == ["record.json"]
    assert objects.names("arms/none") == []
    assert objects.size_of("arms") > 0
    objects.delete("arms/s/record.json")
    objects.delete("arms/s/record.json")
    assert objects.names("arms/s") == []


def test_an_object_that_is_replaced_while_it_is_read_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Remote stores ask for the size, then for so many bytes: of another object by now."""
    objects = ObjectStore(f"file://{tmp_path}")
    objects.put("thing", b"the newest")
    filesystem, prefix = objects._filesystem()
    lengths = [40, 50]  # of what was there when it was asked

    class Replaced:
        def open_input_stream(self, path: str) -> IO[bytes]:
            content: bytes = filesystem.open_input_stream(path).read()
            return io.BytesIO(content[: lengths.pop()] if lengths else content)

    monkeypatch.setattr(objects, "_filesystem", lambda: (Replaced(), prefix))
    assert objects.get("thing") == b"the newest"
    assert not lengths


# --- a store that is away for a moment ------------------------------------------------------------


def stale(*_: object, **__: object) -> None:
    raise OSError(errno.ESTALE, "Stale file handle")


@pytest.mark.parametrize(
    "use",
    [
        lambda objects: objects.get("arms/s/record.json"),
        lambda objects: objects.names("arms/s"),
        lambda objects: objects.delete("arms/s/record.json"),
        lambda objects: objects.delete_folder("arms/s"),
        lambda objects: objects.size_of("arms"),
    ],
    ids=["get", "names", "delete", "delete_folder", "size_of"],
)
def test_whatever_fails_below_the_root_is_a_store_error_that_names_it(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, use: Callable[[ObjectStore], object]
) -> None:
    objects.put("arms/s/record.json", b"1")
    for owner, name in ((os, "listdir"), (Path, "unlink"), (Path, "read_bytes")):
        monkeypatch.setattr(owner, name, stale)
    monkeypatch.setattr(ObjectStore, "_filesystem", stale)
    with pytest.raises(StoreError, match=r"could not \w+ arms.*Stale file handle"):
        use(objects)


def test_a_checkpoint_that_cannot_be_read_now_is_not_passed_over(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArmStore(objects)
    store.put_checkpoint("s", 10, b"10")
    monkeypatch.setattr(Path, "read_bytes", stale)
    with pytest.raises(StoreError, match="Stale file handle"):
        store.newest_checkpoint("s")


# --- damage -------------------------------------------------------------------------------------


def test_a_damaged_record_is_set_aside_with_a_warning(
    objects: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    store = ArmStore(objects)
    store.put_record(record("finished"))
    path = Path(objects.root, "arms/s/record.json")
    path.write_bytes(path.read_bytes()[:-9])
    assert store.record("s") is None
    assert store.record("s") is None
    assert not store.has_final("s")
    (told,) = caplog.messages
    assert "record.json was damaged and is kept as arms/s/record.json.damaged" in told
    assert objects.names("arms/s") == ["record.json.damaged"]
    store.put_record(record())  # the arm is trained again
    assert store.record("s") == record()


def test_a_half_forgotten_arm_has_no_record(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArmStore(objects)
    store.put_record(record("failed"))
    store.put_weights("s", b"weights")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ObjectStore, "delete_folder", killed)
    with pytest.raises(KeyboardInterrupt):
        store.forget("s")
    assert objects.names("arms/s") == ["weights.pt"]
    assert store.record("s") is None
    assert not store.has_final("s")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_root_on_a_disk_that_is_full_or_broken_is_a_failure(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(ObjectStore, "_put_local", staticmethod(full))
    with pytest.raises(StoreError, match=rf"{os.strerror(code)}.*Free some space"):
        objects.check_writable()


def test_a_writer_killed_once_its_final_record_appeared_leaves_nothing_half_written(
    objects: ObjectStore,
) -> None:
    store = ArmStore(objects)
    store.put_record(record("finished"))
    folder = Path(objects.root, "arms/s")
    os.link(folder / "record.json", folder / f".record.json.{uuid.uuid4().hex}.tmp")
    assert store.put_record(record("finished")) == record("finished")  # its arm, started again
    assert os.listdir(folder) == ["record.json"]


def test_half_written_objects_of_killed_writers_can_be_deleted(objects: ObjectStore) -> None:
    store = ArmStore(objects)
    store.put_record(record())
    left = Path(objects.root, "arms/s/.checkpoint-00000010.pt.0123456789abcdef.tmp")
    left.write_bytes(b"half")
    store.drop_left_overs("s")
    store.drop_left_overs("never started")
    assert not left.exists()
    assert store.record("s") == record()
