"""Folders at an address, against moto: fetched once, resumed after a kill, whole or not at all."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from tests.support.drivers import ROOT, wait_until
from tests.support.servers.clouds import BUCKET, REGION, Cloud, Request
from trainables.errors import BadData, StoreError
from trainables.fetching import fetched_folders, remote_folders
from trainables.fetching.background import Background
from trainables.fetching.fetched_folders import fetched, listed

ADDRESS = f"s3://{BUCKET}/data"
FILES = {f"Train/{n:03d}.tif": bytes([n]) * 1000 for n in range(16)}
pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(autouse=True)
def own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that fails leaves its folder, which this process would find again."""
    monkeypatch.setattr(fetched_folders, "_folders", {})


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_folders, "DATA_WAITS_S", (0.01, 0.01))


def upload(cloud: Cloud, files: dict[str, bytes], below: str = "data") -> None:
    client = cloud.client("s3")
    for path, content in files.items():
        client.put_object(Bucket=BUCKET, Key=f"{below}/{path}", Body=content)
    cloud.requests.clear()


def forget(cloud: Cloud) -> None:
    """What a new process does not know."""
    fetched_folders._folders.clear()
    cloud.requests.clear()


def copied(cloud: Cloud) -> Counter[str]:
    """How often each file was read."""
    found = (r.path.removeprefix(f"/{BUCKET}/data/") for r in cloud.requests if r.method == "GET")
    return Counter(path for path in found if path in FILES)


def held(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def test_a_folder_is_fetched_whole_and_once(cloud: Cloud, own_cache: Path) -> None:
    hidden = {".DS_Store": b"", "Train/.cache/lock": b"", "a/../../b": b"climbs"}
    upload(cloud, FILES | {"README.txt": b"read me"} | hidden)
    folder = fetched(ADDRESS)
    assert held(folder) == FILES | {"README.txt": b"read me"}
    assert copied(cloud) == dict.fromkeys(FILES, 1)
    assert fetched(f"{ADDRESS}/") == folder  # asks nobody: this process has looked
    forget(cloud)
    assert fetched(ADDRESS) == folder
    assert not copied(cloud)
    assert sorted(path.name for path in (own_cache / "fetched").iterdir()) == sorted(
        {folder.name, f".{folder.name.rpartition('-')[0]}.lock"}
    )


def test_of_several_at_once_one_copies_and_the_others_hear_how_far_it_is(cloud: Cloud) -> None:
    upload(cloud, FILES)
    told: list[str] = []
    waits = Event()

    def pause(request: Request) -> None:
        if request.method == "GET" and request.path.endswith("015.tif"):
            waits.wait(1.5)  # clients ask again after 3 s

    cloud.before = pause
    fetches = [fetched_folders._Fetch(ADDRESS, (), told.append) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        found = [pool.submit(fetch.folder) for fetch in fetches]
        wait_until(lambda: sum("of 0.0 MB on" in line for line in told) >= 3)
        waits.set()
        folders = {one.result() for one in found}
    assert held(folders.pop()) == FILES
    assert not folders
    assert copied(cloud) == dict.fromkeys(FILES, 1)


KILLED = "import sys; from trainables.fetching.fetched_folders import fetched; fetched(sys.argv[1])"


def test_after_a_kill_only_the_rest_is_copied(cloud: Cloud) -> None:
    upload(cloud, FILES)
    there = Event()

    def stop_at_10(request: Request) -> None:
        if len(copied(cloud)) > 10:
            there.wait(60)

    cloud.before = stop_at_10
    fetcher = subprocess.Popen([sys.executable, "-c", KILLED, ADDRESS], cwd=ROOT)
    wait_until(lambda: len(copied(cloud)) > 10)
    fetcher.send_signal(signal.SIGKILL)
    fetcher.wait()
    cloud.before = lambda request: None
    there.set()
    before = copied(cloud)
    forget(cloud)
    folder = fetched(ADDRESS)
    assert held(folder) == FILES
    again = copied(cloud)
    assert set(again) >= set(FILES) - set(before)
    # ten were answered at most, and of those what was under way comes again, too
    assert len(FILES) - 10 <= len(again) <= 9 + 2 * fetched_folders.COPIES
    assert not list(folder.rglob("*.tmp"))


def test_a_changed_object_gives_another_folder_that_shares_the_rest(cloud: Cloud) -> None:
    upload(cloud, FILES)
    before = fetched(ADDRESS)
    upload(cloud, {"Train/007.tif": b"other"})
    forget(cloud)
    after = fetched(ADDRESS)
    assert held(after) == FILES | {"Train/007.tif": b"other"}
    assert held(before) == FILES  # an arm may still read it
    assert copied(cloud) == {"Train/007.tif": 1}
    cloud.client("s3").delete_object(Bucket=BUCKET, Key="data/Train/003.tif")
    forget(cloud)
    assert "Train/003.tif" not in held(fetched(ADDRESS))


@pytest.mark.parametrize("lost_ns", [0, 1_999_999_999], ids=["exact", "by 2 s, as FAT does"])
def test_however_coarsely_a_disk_keeps_times_what_is_there_is_not_copied_again(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, lost_ns: int
) -> None:
    real = os.utime

    def keep(path: Path, *, ns: tuple[int, int]) -> None:
        real(path, ns=(ns[0] - lost_ns, ns[1] - lost_ns))

    monkeypatch.setattr(os, "utime", keep)
    upload(cloud, FILES)
    before = fetched(ADDRESS)
    forget(cloud)
    assert fetched(ADDRESS) == before
    assert not copied(cloud)
    assert listed(ADDRESS)[1] == 0
    time.sleep(1.0 - time.time() % 1.0)  # the listing tells seconds
    changed = {"Train/007.tif": b"x" * 1000}
    upload(cloud, changed)
    forget(cloud)
    assert held(fetched(ADDRESS)) == FILES | changed


def test_an_object_that_changes_during_the_fetch_is_seen(cloud: Cloud) -> None:
    upload(cloud, FILES)
    changes = [{"Train/005.tif": b"shorter"}, {"Train/015.tif": b"longer" * 1000}]

    def change(request: Request) -> None:
        if request.method == "GET" and request.path.endswith("015.tif") and changes:
            upload(cloud, changes.pop())

    cloud.before = change
    assert held(fetched(ADDRESS)) == FILES | {
        "Train/005.tif": b"shorter",
        "Train/015.tif": b"longer" * 1000,
    }


def test_what_changes_all_the_time_is_refused(cloud: Cloud) -> None:
    upload(cloud, FILES)
    size = count(1)

    def change(request: Request) -> None:
        if request.method == "GET" and request.path.endswith("001.tif"):
            upload(cloud, {"Train/001.tif": bytes(next(size))})

    cloud.before = change
    with pytest.raises(BadData, match="changes while it is fetched"):
        fetched(ADDRESS)


def test_damage_of_the_copy_is_mended(cloud: Cloud) -> None:
    upload(cloud, FILES)
    folder = fetched(ADDRESS)
    (folder / "Train/004.tif").write_bytes(b"cut")
    (folder / "Train/005.tif").unlink()
    forget(cloud)
    assert held(fetched(ADDRESS)) == FILES
    assert set(copied(cloud)) == {"Train/004.tif", "Train/005.tif"}


def test_a_transfer_that_fails_is_tried_again_and_what_lasts_is_told(cloud: Cloud) -> None:
    upload(cloud, FILES)
    seen: Counter[str] = Counter()

    def fail_at_first(request: Request) -> int | None:
        seen[request.path] += 1
        return 400 if request.path.endswith("002.tif") and seen[request.path] < 3 else None

    cloud.before = fail_at_first
    assert held(fetched(ADDRESS)) == FILES
    forget(cloud)
    upload(cloud, {"Train/002.tif": b"new"})
    cloud.before = lambda request: 400 if request.path.endswith("002.tif") else None
    with pytest.raises(StoreError, match=r"could not copy Train/002\.tif from .*goes on"):
        fetched(ADDRESS)


def test_nothing_at_the_address_is_told_with_what_is_beside_it(cloud: Cloud) -> None:
    upload(cloud, {"UCSDped2/Train/001.tif": b"1", "aclImdb/README": b"2"})
    with pytest.raises(BadData, match=r"below s3://lab/data/Ped2 \(.* s3://lab/data has: UCSD"):
        fetched("s3://lab/data/Ped2")
    with pytest.raises(BadData, match="s3://nowhere"):
        fetched("s3://nowhere/data")
    with pytest.raises(BadData, match=r"Give an address such as s3://bucket/path"):
        fetched("s4://lab/data")


def test_options_of_an_address_name_neither_what_is_told_nor_the_folder(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They say how the store is reached, and also what lies beside is asked for with them."""
    upload(cloud, {"UCSDped2/a": b"1", "aclImdb/b": b"2"})
    plain = fetched(f"{ADDRESS}/aclImdb")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    there = urlsplit(cloud.url).netloc
    for options in (f"endpoint_override={there}&scheme=http", f"endpoint_override={cloud.url}"):
        options += f"&region={REGION}"
        with pytest.raises(BadData) as refused:
            fetched(f"{ADDRESS}/Ped2/?{options}", ("UCSDped2", "ped2"))
        told = str(refused.value)
        assert "nothing below s3://lab/data/Ped2 (looked for: folders UCSDped2, ped2, then" in told
        assert "s3://lab/data has: UCSDped2, aclImdb." in told
        assert "`aws s3 sync DIR s3://lab/data/Ped2 --endpoint-url URL`" in told
        assert "endpoint_override" not in told
        assert there not in told
        assert fetched(f"{ADDRESS}/aclImdb?{options}") == plain


def test_a_refusal_is_not_tried_again(cloud: Cloud) -> None:
    cloud.before = lambda request: 403
    with pytest.raises(BadData, match="this machine may read"):
        listed(ADDRESS)


def test_a_full_disk_is_told_before_anything_is_copied(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(cloud, FILES)
    full = SimpleNamespace(free=15_999)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    with pytest.raises(StoreError, match=r"needs 0\.0 GB, 0\.0 are free.*SWEEP_CACHE"):
        fetched(ADDRESS)
    assert not copied(cloud)


def test_what_is_to_be_fetched_is_known_before(cloud: Cloud) -> None:
    upload(cloud, FILES)
    files, missing = listed(ADDRESS)
    assert ({file.path for file in files}, missing) == (set(FILES), 16_000)
    fetched(ADDRESS)
    assert listed(ADDRESS)[1] == 0


def test_only_the_folders_that_are_named_are_fetched(cloud: Cloud) -> None:
    upload(cloud, {"UCSDped2/a": b"1", "aclImdb/b": b"2", "other/c": b"3"})
    assert set(held(fetched(ADDRESS, ("UCSDped2", "ped2")))) == {"UCSDped2/a"}
    assert set(held(fetched(f"{ADDRESS}/aclImdb", ("aclImdb",)))) == {"b"}


def test_news_of_a_fetch_ends_with_what_came_of_it() -> None:
    goes_on, fails = Event(), Event()

    def action(tell: fetched_folders.Tell) -> None:
        tell("1 of 2")
        goes_on.wait(30)
        if fails.is_set():
            raise StoreError("away")

    fetch = Background(action)
    assert fetch.event(0.01) == "1 of 2"
    goes_on.set()
    assert fetch.event(5) == ""
    fails.set()
    with pytest.raises(StoreError, match="away"):
        Background(action).event(5)
