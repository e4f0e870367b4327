"""The store on S3, against moto: put whole, final records stay, damage is refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweep.results.aggregates import COSTS
from tests.support.command_line import sweep
from tests.support.oracles import TINY
from tests.support.servers.clouds import BUCKET, Cloud, Request
from trainables.errors import DamagedObject, Misuse, StoreError
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.records.retrying import RetryingStore

PART = 10 * 2**20  # pyarrow puts what is larger in parts of this size


@pytest.fixture
def objects(cloud: Cloud) -> ObjectStore:
    return ObjectStore(f"s3://{BUCKET}/root")


def stored(cloud: Cloud, name: str) -> bytes:
    body: bytes = cloud.client("s3").get_object(Bucket=BUCKET, Key=f"root/{name}")["Body"].read()
    return body


def replace_stored(cloud: Cloud, name: str, content: bytes) -> None:
    cloud.client("s3").put_object(Bucket=BUCKET, Key=f"root/{name}", Body=content)


def writes(cloud: Cloud) -> list[str]:
    """What was written since the last look, but for the empty markers of folders."""
    found = [f"{r.method} {r.path}" for r in cloud.requests if r.method in ("PUT", "POST")]
    cloud.requests.clear()
    return [line for line in found if not line.endswith("/")]


def record(status: str = "running") -> ArmRecord:
    return replace(ArmRecord(signature="s", config=TINY), status=status)


# --- the store's promises, as on a disk -----------------------------------------------------------


def test_what_is_put_is_got(objects: ObjectStore) -> None:
    assert not objects.exists("a/b/c")
    objects.put("a/b/c", b"content")
    assert objects.get("a/b/c") == b"content"
    assert objects.exists("a/b/c")
    assert objects.get("a/b/other") is None
    assert objects.names("a/b") == ["c"]
    assert objects.names("a") == ["b"]
    assert objects.names("nowhere") == []
    assert objects.size_of("a") > len(b"content")
    objects.delete("a/b/c")
    objects.delete("a/b/c")
    assert objects.names("a/b") == []
    assert objects.get("a/b/c") is None


def test_a_forgotten_arm_leaves_nothing(objects: ObjectStore) -> None:
    store = ArmStore(objects)
    store.put_record(record("failed"))
    store.put_weights("s", b"weights")
    store.forget("s")
    assert objects.names("arms") == []
    assert store.record("s") is None


def test_put_once_keeps_the_first(objects: ObjectStore) -> None:
    assert objects.put_once("thing", b"first") == b"first"
    assert objects.put_once("thing", b"second") == b"first"
    assert objects.get("thing") == b"first"


# --- put whole ------------------------------------------------------------------------------------


def test_a_record_is_put_by_one_request(cloud: Cloud, objects: ObjectStore) -> None:
    objects.put("arms/s/record.json", b"x" * 100_000)
    assert writes(cloud) == [f"PUT /{BUCKET}/root/arms/s/record.json"]


KILLED = """
import os, sys
from trainables.records.objects import ObjectStore
ObjectStore(sys.argv[1]).put("big", os.urandom(3 * int(sys.argv[2])))
"""


def test_a_writer_that_is_killed_halfway_leaves_the_old_object(
    cloud: Cloud, objects: ObjectStore
) -> None:
    objects.put("big", b"old")
    writer = subprocess.Popen([sys.executable, "-c", KILLED, objects.root, str(PART)])

    def kill_at_the_second_part(request: Request) -> None:
        if "partNumber=2" in request.query:
            writer.send_signal(signal.SIGKILL)

    cloud.before = kill_at_the_second_part
    assert writer.wait(timeout=60) == -signal.SIGKILL
    assert objects.get("big") == b"old"
    assert objects.names("") == ["big"]


@pytest.mark.parametrize(
    ("size", "refused"),
    [(100, ""), (3 * PART, "partNumber=1"), (3 * PART, "partNumber=2")],
    ids=["its one request", "its first part", "its second part"],
)
def test_a_put_that_is_refused_raises_and_leaves_the_old_object(
    cloud: Cloud, objects: ObjectStore, size: int, refused: str
) -> None:
    objects.put("thing", b"old")
    cloud.before = lambda r: 403 if r.method == "PUT" and refused in r.query else None
    with pytest.raises(StoreError, match=r"could not write thing below s3://lab/root"):
        objects.put("thing", b"n" * size)
    cloud.before = lambda request: None
    assert objects.get("thing") == b"old"


def test_a_store_that_is_away_for_a_moment_is_waited_for(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = [403, 403]
    waited: list[float] = []
    monkeypatch.setattr("trainables.records.retrying.time.sleep", waited.append)
    cloud.before = lambda request: refusals.pop() if refusals else None
    store = RetryingStore(f"s3://{BUCKET}/root")
    store.put("thing", b"content")
    assert store.get("thing") == b"content"
    assert waited


# --- final records and damage ---------------------------------------------------------------------


def test_a_final_record_is_never_replaced(cloud: Cloud, objects: ObjectStore) -> None:
    store = ArmStore(objects)
    store.put_record(record())
    final = store.put_record(record("failed"))
    before = stored(cloud, "arms/s/record.json")
    cloud.requests.clear()
    for late in ("running", "finished", "stopped"):
        assert store.put_record(record(late)) == final
    assert writes(cloud) == []
    assert stored(cloud, "arms/s/record.json") == before


def test_a_writer_that_rests_between_look_and_write_replaces_no_final_record(
    cloud: Cloud, objects: ObjectStore
) -> None:
    store, other = ArmStore(objects), ArmStore(ObjectStore(objects.root))

    def arm_ends(request: Request) -> None:
        if request.method == "PUT" and "arms/s/" in request.path and request.path[-1] != "/":
            cloud.before = lambda request: None
            other.put_record(record("finished"))

    assert other.record("s") is None  # it is connected
    cloud.before = arm_ends
    store.put_record(record())
    assert store.record("s") == record("finished")
    assert store.has_final("s")
    assert store.put_record(record()) == record("finished")
    assert objects.names("arms/s") == ["record.json"]


@pytest.mark.parametrize("remove", [ObjectStore.delete, ObjectStore.set_aside])
@pytest.mark.parametrize("at", [1, 2])
def test_two_that_remove_one_object_do_not_disturb_each_other(
    cloud: Cloud, objects: ObjectStore, remove: Callable[[ObjectStore, str], object], at: int
) -> None:
    """The other one is faster: between this one's first look and what follows, or before."""
    objects.put("thing", b"content")
    other, left = ObjectStore(objects.root), [None] * at

    def removed(request: Request) -> None:
        if left and request.path.endswith("/thing") and (left.pop() or not left):
            other.delete("thing")

    assert other.exists("thing")  # it is connected
    cloud.before = removed
    remove(objects, "thing")
    cloud.before = lambda request: None
    assert objects.get("thing") is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[:-1],
        lambda whole: whole[1:],
        lambda whole: b"y" + whole[1:],
        lambda whole: b"",
    ],
    ids=["cut at the end", "cut at the start", "changed", "empty"],
)
def test_a_damaged_object_is_refused_by_name(
    cloud: Cloud, objects: ObjectStore, damage: object
) -> None:
    objects.put("thing", b"x" * 100)
    assert callable(damage)
    replace_stored(cloud, "thing", damage(stored(cloud, "thing")))
    with pytest.raises(DamagedObject, match=r"thing below s3://lab/root is damaged"):
        objects.get("thing")


def test_an_object_that_is_replaced_while_it_is_read_is_not_damaged(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its size is asked for when it is opened; by then somebody puts a longer one."""
    writer, versions = ObjectStore(objects.root), [b"longer", b"the longest of all"]
    writer.put("thing", b"short")
    filesystem, prefix = objects._filesystem()

    class Replacing:
        def open_input_stream(self, path: str) -> object:
            stream = filesystem.open_input_stream(path)
            if versions:
                writer.put("thing", versions.pop(0))
            return stream

    monkeypatch.setattr(objects, "_filesystem", lambda: (Replacing(), prefix))
    assert objects.get("thing") == b"the longest of all"


def test_a_damaged_record_is_set_aside_and_its_arm_trained_again(
    cloud: Cloud, objects: ObjectStore
) -> None:
    store = ArmStore(objects)
    store.put_record(record("finished"))
    replace_stored(cloud, "arms/s/record.json", stored(cloud, "arms/s/record.json")[:-9])
    assert store.record("s") is None
    assert objects.names("arms/s") == ["record.json.damaged"]
    store.put_record(record())
    assert store.record("s") == record()


def test_the_two_newest_checkpoints_are_kept_and_damaged_ones_passed_over(
    cloud: Cloud, objects: ObjectStore
) -> None:
    store = ArmStore(objects)
    for step in (10, 20, 30):
        store.put_checkpoint("s", step, str(step).encode())
    assert objects.names("arms/s") == ["checkpoint-00000020.pt", "checkpoint-00000030.pt"]
    assert store.newest_checkpoint("s") == (30, b"30")
    replace_stored(cloud, "arms/s/checkpoint-00000030.pt", b"torn")
    assert store.newest_checkpoint("s") == (20, b"20")


# --- roots that cannot be used --------------------------------------------------------------------


def test_a_bucket_that_is_not_there_is_a_misuse(cloud: Cloud) -> None:
    with pytest.raises(Misuse, match=r"s3://no-such-bucket/root cannot be written"):
        ObjectStore("s3://no-such-bucket/root").check_writable()


def test_a_bucket_of_somebody_else_is_a_misuse(cloud: Cloud, objects: ObjectStore) -> None:
    cloud.before = lambda request: 403
    with pytest.raises(Misuse, match=r"s3://lab/root cannot be written"):
        objects.check_writable()


@pytest.mark.slow
def test_a_sweep_on_s3_gives_the_table_of_one_on_a_disk(
    objects: ObjectStore, space_file: str, trained_once: Path, tmp_path: Path
) -> None:
    tracked = ("--mlflow", f"sqlite:///{tmp_path}/mlflow.db")
    ran = sweep("run", space_file, "--where", "inline", "--storage", objects.root, *tracked)
    assert "2 of 2 arms are final" in ran.stdout
    there, here = (
        json.loads(sweep("best", "mine", "--json", "--storage", root).stdout, object_hook=lasting)
        for root in (objects.root, str(trained_once))
    )
    assert there == here
    assert there[0]["constrained"]["objective"] is not None


def lasting(plain: dict[str, Any]) -> dict[str, Any]:
    """Without what differs from run to run: times, memory, and MLflow's names of runs."""
    return {key: value for key, value in plain.items() if key not in {*COSTS, "mlflow_run_id"}}
