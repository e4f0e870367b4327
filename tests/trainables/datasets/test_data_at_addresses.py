"""Arms whose data and weights lie at an address, against moto: the same arms as from a folder."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from search_spaces.space import SearchSpace, Setting
from sweep.doctor.data import check_folder, check_requirement
from sweep.doctor.scope import list_requirements
from sweep.study.definition import load_definition, put_definition
from sweep.study.requirements import fetch, resolve_checkpoints, resolve_data
from tests.support.command_line import refused, sweep
from tests.support.data.ped2_folders import config as ped2
from tests.support.data.ped2_folders import write_original
from tests.support.data.text_runs import tiny_text
from tests.support.drivers import ROOT, Driver, records, tiny, undisturbed
from tests.support.oracles import TINY
from tests.support.servers.clouds import BUCKET, Cloud
from tests.support.sweeps import SPACE as TWO
from tests.support.training.trials import trial_of
from trainables.config.arm import ArmConfig
from trainables.fetching import fetched_folders
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.trial import FETCHING, arms_of

ADDRESS = f"s3://{BUCKET}/data"


@pytest.fixture(autouse=True)
def nothing_fetched(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    monkeypatch.setattr(fetched_folders, "_folders", {})


def upload(cloud: Cloud, folder: Path, below: str) -> None:
    client = cloud.client("s3")
    for path in folder.rglob("*"):
        if path.is_file():
            key = f"data/{below}/{path.relative_to(folder).as_posix()}"
            client.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())
    cloud.requests.clear()


@pytest.fixture
def clips(cloud: Cloud, tmp_path: Path) -> Path:
    """Ped2 in miniature, in a folder; below ADDRESS as well, beside what no arm of it reads."""
    folder = write_original(tmp_path / "UCSDped2")
    upload(cloud, folder, "UCSDped2")
    cloud.client("s3").put_object(Bucket=BUCKET, Key="data/shanghaitech/big", Body=b"x" * 10**6)
    cloud.requests.clear()
    return folder


def run_on(folder: Path | str | None) -> ArmConfig:
    data = replace(ped2(folder), frame_size=16, patch_size=4, frames=3)
    return replace(TINY, data=data, steps=4, report_every=2)


def space_of(run: ArmConfig) -> SearchSpace:
    return replace(TWO, base=run, settings=(Setting("only", {}),), n_proposals=1, search_seeds=(0,))


@pytest.mark.slow
def test_the_arms_are_those_of_the_folder(
    clips: Path, tmp_path: Path, root: Path, own_cache: Path, cloud: Cloud
) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(space_of(run_on(None)).to_json()))
    told = ("run", str(file), "--name", "mine", "--where", "inline")
    first = sweep(*told, "--data", ADDRESS)
    assert "sweep: fetching data: 0.0 of 0.1 MB on" in first.stderr
    assert not any("big" in request.path for request in cloud.requests)
    objects = ObjectStore(root)
    trained = records(objects)
    assert len(trained) == 2
    assert load_definition(objects, "mine").space.base.data.folder == ADDRESS
    again = sweep(*told, "--data", str(clips))  # nothing is trained again
    assert "2 of 2 arms are final" in again.stdout
    assert records(objects) == trained
    fresh = ObjectStore(tmp_path / "fresh")
    sweep(*told, "--data", f"file://{clips}", "--storage", fresh.root)
    evaluations = {name: record.evaluation for name, record in records(fresh).items()}
    assert evaluations == {name: record.evaluation for name, record in trained.items()}


@pytest.mark.slow
def test_sweep_data_is_for_settings_that_need_a_folder(
    clips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEP_DATA", ADDRESS)
    settings = (Setting("built-in", {"data.name": "photographs"}), Setting("ped2", {}))
    space = resolve_data(fetch(replace(space_of(run_on(None)), settings=settings), print))
    built_in, there = (space.run(s, {}, seed=0).data for s in space.settings)
    assert (built_in.folder, there.folder) == (None, ADDRESS)
    given = resolve_data(fetch(space_of(run_on(clips)), print))
    assert given.base.data.folder == str(clips)
    assert given.base.data.fingerprint == there.fingerprint


def test_weights_at_an_address_are_those_of_the_folder(cloud: Cloud, tmp_path: Path) -> None:
    run = tiny_text(tmp_path)
    upload(cloud, Path(str(run.model.checkpoint)), "weights/bert")
    there = run.with_fields({"model.checkpoint": f"{ADDRESS}/weights/bert"})
    here, away = (
        resolve_data(resolve_checkpoints(fetch(space_of(one), print))).base for one in (run, there)
    )
    assert away.model.checkpoint == f"{ADDRESS}/weights/bert"
    assert (away.signature(), away.model.layers) == (here.signature(), 3)


@pytest.mark.slow
def test_a_worker_says_how_far_it_is_until_its_data_are_there(
    clips: Path, cloud: Cloud, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = resolve_data(fetch(space_of(run_on(ADDRESS)), print)).base
    monkeypatch.setattr(fetched_folders, "_folders", {})
    monkeypatch.setenv("SWEEP_CACHE", f"{objects.root}/other")  # as on another machine
    monkeypatch.setattr("trainables.trial.FETCH_TOLD_S", 0.01)
    cloud.before = lambda request: time.sleep(0.1)
    trial = trial_of(objects, run)
    results = [trial.step()]
    while not results[-1]["done"]:
        results.append(trial.step())
    told = [result[FETCHING] for result in results if FETCHING in result]
    assert told
    assert all(line.startswith("fetching data: ") for line in told)
    reported = [[arm.report is not None for arm in arms_of(result)] for result in results[-2:]]
    assert reported == [[True], [True]]
    assert arms_of(results[-1])[0].finished
    assert ArmStore(objects).record(run.signature()) is not None


def test_a_key_in_an_address_is_refused(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(space_of(run_on(None)).to_json()))
    told = refused("run", str(file), "--data", "s3://AKIA:5ecre7@lab/data")
    assert "address of data or weights must be without a key" in told
    assert "5ecre7" not in told
    address = ("--address", "http://127.0.0.1:9")
    assert "without a key" in refused("submit", str(file), "--data", "s3://a:b@lab/data", *address)


def test_doctor_lists_an_address_and_fetches_nothing(clips: Path, own_cache: Path) -> None:
    (need,) = list_requirements(space_of(run_on(ADDRESS)))
    check = check_requirement(need)
    assert check.passed
    assert f"MB at {ADDRESS}, fetched when an arm needs it" in check.finding
    assert not own_cache.exists()
    assert check_folder(ADDRESS).passed
    missing = check_folder("s3://lab/nothing")
    assert (missing.passed, "there is nothing below" in missing.finding) == (False, True)


# One setting of each of two built-in spaces, with everything that takes time made small.
SMALL = (
    *("--set", "steps=2", "--set", "report_every=1", "--set", "batch_size=2", "--set", "threads=1"),
    *("--set", "eval_windows=2", "--set", "eval_draws=1", "--set", "device=cpu"),
    *("--set", "sampler=random", "--proposals", "1", "--seeds", "0,", "--where", "inline"),
)
VIDEO = ("--set", "data.frame_size=16", "--set", "data.patch_size=4", "--set", "data.frames=3")
TEXT = ("--set", "data.max_length=32", "--set", "data.dev_fraction=0.4", "--set", "dtype=float32")


@pytest.mark.slow
def test_the_shipped_cluster_file_runs_a_video_and_a_text_space(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On what its nodes find in their environment, once the bucket has what its comments put."""
    text = (ROOT / "cluster.yaml").read_text().replace("s3://FILL-IN", f"s3://{BUCKET}")
    exported = dict(re.findall(r"(SWEEP_STORAGE|SWEEP_DATA)=(\S+)", text))
    assert exported == {"SWEEP_STORAGE": f"s3://{BUCKET}/sweeps", "SWEEP_DATA": ADDRESS}
    for name, value in exported.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    upload(cloud, write_original(tmp_path / "ped2"), "UCSD_Anomaly_Dataset.v1p2/UCSDped2")
    run = tiny_text(tmp_path)
    upload(cloud, tmp_path / "aclImdb", "aclImdb")
    upload(cloud, Path(str(run.model.checkpoint)), "checkpoints/bert")
    weights = ("--set", f"model.checkpoint={ADDRESS}/checkpoints/bert")
    ran = sweep("run", "video_denoising_ut", "--only", "ucsd_ped2-ut-L3-g0.15", *VIDEO, *SMALL)
    assert "2 of 2 arms are final" in ran.stdout
    ran = sweep("run", "text_classification_ut", "--only", "imdb-ut-L3-g1", *TEXT, *weights, *SMALL)
    assert "2 of 2 arms are final" in ran.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("ray_home")
def test_real_clips_at_an_address_train_on_ray_as_from_their_folder(
    cloud: Cloud, real_data: Path, tmp_path: Path, trained_inline: ObjectStore
) -> None:
    folder = real_data / "UCSD_Anomaly_Dataset.v1p2" / "UCSDped2"
    upload(cloud, folder, "UCSD_Anomaly_Dataset.v1p2/UCSDped2")
    fields = {"data.name": "ucsd_ped2", "data.folder": ADDRESS, "data.frames": 5, "data.stride": 1}
    asked = tiny(n_proposals=1, **{"steps": 20, "report_every": 10, **fields})
    objects = ObjectStore(tmp_path / "store")
    asked = replace(asked, space=resolve_data(fetch(asked.space, print)))
    put_definition(objects, asked)
    driver = Driver(objects, environment={**os.environ, "SWEEP_CACHE": str(tmp_path / "other")})
    code, out, err = driver.wait()
    assert code == 0, out + err
    assert "fetching data: " in err
    local = replace(asked, space=asked.space.with_base({"data.folder": str(folder)}))
    assert {n: r.evaluation for n, r in records(objects).items()} == undisturbed(
        trained_inline, local
    )[1]
