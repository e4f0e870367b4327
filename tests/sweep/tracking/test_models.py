"""Logged models: registered once, loaded in a process of their own, predicting as in training."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch

from search_spaces.alpaca_small import SPACE as ALPACA_SMALL
from sweep.results.sweep_view import load_sweep
from sweep.study.definition import Definition, put_definition
from sweep.study.pairs import ProposalResult, join
from sweep.tracking import descent_sweep_loader
from sweep.tracking.address import TrackingError, sweep_id, tracking_uri
from sweep.tracking.client import find_experiment, make_client
from sweep.tracking.models import ModelArm, Models, Registered, arms_of, requirements
from sweep.tracking.sources import tracked_arms
from sweep.tracking.tracker import Tracker, sync_all
from tests.support.command_line import contents, refused, sweep
from tests.support.data.text_runs import tiny_text
from tests.support.oracles import TINY
from tests.support.records import finished
from tests.support.servers.mlflow_servers import Server
from tests.support.sweeps import FEASIBLE, FIRST, INFEASIBLE, SECOND, store_sweep
from tests.support.tracked_arms import SWEEP, tracked
from trainables.arm_run import ArmRun
from trainables.build import build_model
from trainables.config.arm import ArmConfig, DataConfig, ModelConfig
from trainables.errors import Failure, Misuse
from trainables.layer_losses import layer_predictions
from trainables.machine import scratch
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.tasks.denoising import Denoising, joined_patches
from trainables.tasks.text_classification import TextClassification
from trainables.training import Training, to_bytes

# A process of its own, which is told where MLflow is and which models to ask.
FRESH = """
import sys
import mlflow, numpy, pandas
windows, texts, models = sys.argv[1], sys.argv[2], sys.argv[3:]
video, text = (mlflow.pyfunc.load_model(uri) for uri in models)
noisy = numpy.load(windows)
for layer in range(4):
    numpy.save(f"windows-{layer}.npy", video.predict(noisy, params={"layer": layer}))
last = video.predict(noisy)
assert (last == video.predict(noisy, params={"layer": 3})).all()
asked = pandas.read_json(texts, orient="records")
text.predict(asked, params={"layer": 2}).to_json("scores.json", orient="records", double_precision=15)
print(video.metadata.signature, text.metadata.signature)
print(video.predict(video.input_example).shape, len(text.predict(text.input_example)))
"""  # noqa: E501


def trained(config: ArmConfig, store: ArmStore) -> tuple[ArmRecord, Training]:
    """A finished arm, and its training as the loop left it."""
    run = ArmRun(config, store)
    while not run.advance().is_final:
        pass
    assert run.record.status == "finished", run.record.reason
    assert run._arm is not None
    return run.record, run._arm.training


def predictions(training: Training, task: Any, gamma: float) -> list[tuple[Any, list[np.ndarray]]]:
    """Held-out batches, and what the network that was evaluated makes of them by layer."""
    with torch.no_grad():
        return [
            (batch, [p.numpy() for p in layer_predictions(training.evaluated, task, batch)])
            for batch in task.held_out("dev", gamma, 0)
        ]


@pytest.mark.slow
def test_a_ut_and_an_encoder_predict_in_a_fresh_process_as_in_training(
    objects: ObjectStore, tmp_path: Path
) -> None:
    uri = tracking_uri(objects.root)
    store, tracker = ArmStore(objects), Tracker(uri, sweep_id="lab")
    arms = (replace(TINY, weight_ema=0.9), tiny_text(tmp_path / "texts"))
    (video, of_video), (text, of_text) = (trained(config, store) for config in arms)
    models = []
    for record in (video, text):
        tracker.sync(tracked(record))
    registry = Models(uri, objects, SWEEP, "lab")
    for setting, record in (("video", video), ("text", text)):
        models.append(registry.register(ModelArm(setting, 0, record, None)))
    task, texts = of_video.task, of_text.task
    assert isinstance(task, Denoising)
    assert isinstance(texts, TextClassification)
    by_patch = predictions(of_video, task, 0.15)
    side = task.video.frame_size

    def frames(samples: np.ndarray) -> np.ndarray:
        return joined_patches(torch.tensor(samples).transpose(0, 1), side, side).numpy()

    work = tmp_path / "elsewhere"
    work.mkdir()
    noisy = np.stack([frames(batch.inputs.numpy()) for batch, _ in by_patch])
    np.save(work / "noisy.npy", noisy)
    examples = texts.texts.split("dev")
    wanted = [examples[i] for i in np.concatenate(texts._unit_samples("dev")).tolist()]
    asked = pandas.DataFrame({"text": [example.text for example in wanted]})
    asked.to_json(work / "texts.json", orient="records")
    by_text = predictions(of_text, texts, 0.0)
    shutil.rmtree(tmp_path / "texts")  # data, checkpoint and tokenizer
    for signature in (video.signature, text.signature):
        store.drop_weights(signature)

    ran = subprocess.run(
        [sys.executable, "-c", FRESH, "noisy.npy", "texts.json", *(m.uri for m in models)],
        cwd=work, env=fresh_environment(uri), capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    for layer in range(4):
        found = np.load(work / f"windows-{layer}.npy")
        expected = np.stack([frames(layers[layer]) for _, layers in by_patch])
        np.testing.assert_array_equal(found, expected)
    assert np.abs(found - noisy).max() > 0.01  # it denoises: this is not the input
    scores = pandas.read_json(work / "scores.json", orient="records")
    for batch, layers in by_text:
        expected = torch.softmax(torch.tensor(layers[2]).double(), dim=-1).numpy()
        rows = scores.iloc[list(batch.samples)]
        # padding of other batches, and 15 digits of JSON: float32 sums in another order
        np.testing.assert_allclose(rows[["score_neg", "score_pos"]], expected, rtol=0, atol=1e-6)
        assert list(rows["label"]) == [texts.texts.labels[i] for i in expected.argmax(axis=1)]
    assert "'layer': long (default: 3)" in ran.stdout
    assert "Tensor('float32', (-1, 3, -1, -1))" in ran.stdout
    assert "'text': string (required), 'pair': string (optional)" in ran.stdout
    assert ran.stdout.endswith("(1, 3, 8, 8) 2\n")


def fresh_environment(uri: str) -> dict[str, str]:
    import os

    return {**os.environ, "MLFLOW_TRACKING_URI": uri}


# --- a sweep's winners ----------------------------------------------------------------------------


def with_weights(objects: ObjectStore, name: str = "tiny") -> None:
    """Weights of every finished arm, as a driver would have kept them: of networks at the start."""
    store = ArmStore(objects)
    for arm in load_sweep(objects, name).arms.values():
        record = store.record(arm.signature)
        if record is not None and record.evaluation is not None:
            model = build_model(record.config, record.evaluation)
            store.put_weights(record.signature, to_bytes({"model": model.state_dict()}))


def send(objects: ObjectStore, uri: str, name: str = "tiny") -> None:
    definition = load_sweep(objects, name).definition
    tracker = Tracker(uri, sweep_id=sweep_id(objects, name))
    sync_all(tracker, tracked_arms(objects, definition), say=lambda _: None)


def registry(uri: str) -> dict[str, Any]:
    """Every registered model: its versions, aliases and tags."""
    client = make_client(uri)
    return {
        model.name: (
            {str(v.version): (v.run_id, v.tags) for v in versions},
            {alias: str(number) for alias, number in model.aliases.items()},
        )
        for model in client.search_registered_models()
        for versions in [client.search_model_versions(f"name = '{model.name}'")]
    }


@pytest.mark.slow
def test_winners_are_registered_once_and_another_one_takes_the_alias(
    stored: ObjectStore,
) -> None:
    with_weights(stored)
    uri = tracking_uri(stored.root)
    send(stored, uri)
    first = sweep("register", "tiny", "--arm", "both")
    name = f"tiny.{FIRST}"
    assert first.stdout.splitlines()[:2] == [
        f"models:/{name}@winner  (version 1, new)",
        f"models:/{name}@unconstrained  (version 2, new)",
    ]
    assert f"{SECOND}: left out, since they have no winner." in first.stderr
    there = registry(uri)
    versions, aliases = there[name]
    assert aliases == {"winner": "1", "unconstrained": "2"}
    _, tags = versions["1"]
    winner = load_sweep(stored, "tiny").settings[0].chosen.winner
    assert winner is not None
    ours = winner.pairs[0].constrained
    expected = {"setting": FIRST, "arm": "constrained", "proposal": "1", "seed": "0",
                "signature": ours.signature, "feasible": "yes", "objective": "-0.2"}  # fmt: skip
    assert expected.items() <= tags.items()
    assert float(tags["missing_share"]) == pytest.approx(winner.pairs[0].judgement.worst, abs=1e-3)  # type: ignore[union-attr]
    assert versions["2"][1]["feasible"] == "no"

    before = contents(Path(stored.root, "mlartifacts"))
    again = sweep("register", "tiny", "--arm", "both")
    assert again.stdout.splitlines()[0].endswith("(version 1, as before)")
    assert registry(uri) == there
    assert contents(Path(stored.root, "mlartifacts")) == before

    store_sweep(stored, {FIRST: [INFEASIBLE, FEASIBLE, FEASIBLE]}, objectives={(FIRST, 2): -0.3})
    with_weights(stored)
    send(stored, uri)
    assert "@winner  (version 3, new)" in sweep("register", "tiny").stdout
    versions, aliases = registry(uri)[name]
    assert aliases == {"winner": "3", "unconstrained": "2"}
    assert versions["3"][1]["proposal"] == "2"


@pytest.mark.slow
def test_a_model_left_half_sent_is_logged_anew(
    stored: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_weights(stored)
    uri = tracking_uri(stored.root)
    send(stored, uri)
    winner = load_sweep(stored, "tiny").settings[0].chosen.winner
    assert winner is not None
    (arm,) = arms_of(FIRST, winner, both=False)
    client, identity = make_client(uri), sweep_id(stored, "tiny")
    experiment = find_experiment(client, "tiny", identity)
    assert experiment is not None
    (run,) = client.search_runs(
        [experiment.experiment_id], f"tags.signature = '{arm.record.signature}'"
    )
    left = client.create_logged_model(  # by a process that was killed during its files
        experiment.experiment_id, source_run_id=run.info.run_id, tags=arm.tags()
    )
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    files = tmp_path / "tmp" / f"{scratch.PREFIX}model-x"  # of its killed writer
    files.mkdir(parents=True)
    (files / scratch.OWNER).touch()
    models = Models(uri, stored, "tiny", identity)
    assert models.register(arm) == Registered(f"tiny.{FIRST}", "1", "winner", True)
    assert not files.exists()
    (model,) = client.search_logged_models([experiment.experiment_id])
    assert (model.model_id == left.model_id, str(model.status)) == (False, "READY")
    client.delete_registered_model_alias(f"tiny.{FIRST}", "winner")  # or killed before the alias
    assert models.register(arm).version == "1"


@pytest.mark.slow
def test_sweeps_of_one_name_keep_apart_on_a_server(stored: ObjectStore, tmp_path: Path) -> None:
    other = ObjectStore(tmp_path / "other")
    store_sweep(other, {FIRST: [FEASIBLE]})
    server = Server(tmp_path)
    server.start()
    try:
        for objects in (stored, other):
            with_weights(objects)
            send(objects, server.uri)
            words = ("--mlflow", server.uri, "--storage", objects.root)
            sweep("register", "tiny", "--only", FIRST, *words)
        again = sweep("register", "tiny", "--only", FIRST, *words)
        assert "(version 1, as before)" in again.stdout
        second = f"tiny.{FIRST}.{sweep_id(other, 'tiny')[:8]}"
        assert {name: aliases for name, (_, aliases) in registry(server.uri).items()} == {
            f"tiny.{FIRST}": {"winner": "1"},
            second: {"winner": "1"},
        }
        code = f"import mlflow; print(mlflow.pyfunc.load_model('models:/{second}@winner').metadata)"
        ran = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=fresh_environment(server.uri),
            capture_output=True, text=True,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
    finally:
        server.stop()


def test_of_several_seeds_the_first_feasible_one_is_registered() -> None:
    pairs = []
    for seed, losses in ((0, INFEASIBLE), (1, FEASIBLE), (2, FEASIBLE)):
        config = replace(
            TINY.with_fields({"constraint.alpha": 0.2, "constraint.reference_unit": "constant",
                              "constraint.reference_loss": 1.0, "constraint.reference":
                              "virtual_layer0"}), seed=seed,
        )  # fmt: skip
        plain = finished(config.unconstrained(), [0.5, 0.6, 0.7, 0.25])
        pairs.append(join(finished(config, losses), plain))
    winner = ProposalResult(7, {}, tuple(pairs))
    ours, plain_arm = arms_of("one", winner, both=True)
    assert [arm.record.config.seed for arm in (ours, plain_arm)] == [1, 1]
    assert (ours.alias, plain_arm.alias) == ("winner", "unconstrained")
    assert (ours.tags()["feasible"], plain_arm.tags()["feasible"]) == ("yes", "no")


# --- what is refused ------------------------------------------------------------------------------


def test_what_cannot_be_registered_is_told(stored: ObjectStore) -> None:
    assert "tiny was never tracked in MLflow" in refused("register", "tiny")
    assert "`sweep best tiny" in refused("register", "tiny", "--only", SECOND)
    assert "unknown setting of tiny" in refused("register", "tiny", "--only", "third")
    put_definition(stored, Definition("answers", ALPACA_SMALL))
    assert "they write answers token by token" in refused("register", "answers")
    with pytest.raises(Misuse, match=r"has no place for files.*mlflow server"):
        Models("postgresql://me@host/db", stored, "tiny", "id")


@pytest.mark.slow
def test_what_mlflow_or_the_store_lacks_is_told(stored: ObjectStore) -> None:
    sweep_id(stored, "tiny")
    away = sweep("register", "tiny", "--mlflow", "http://127.0.0.1:9", exits=1)
    assert "could not be reached" in away.stderr
    uri = tracking_uri(stored.root)
    assert "nothing is tracked" in sweep("register", "tiny", exits=1).stderr
    send(stored, uri)
    lacking = sweep("register", "tiny", exits=1).stderr
    assert "the weights of arm" in lacking
    assert "`sweep export tiny" in lacking
    winner = load_sweep(stored, "tiny").settings[0].chosen.winner
    assert winner is not None
    (arm,) = arms_of(FIRST, winner, both=False)
    stranger = replace(arm, record=replace(arm.record, signature="0" * 16))
    with pytest.raises(TrackingError, match=r"lacks the run of arm 0000.*sweep sync"):
        Models(uri, stored, "tiny", sweep_id(stored, "tiny")).register(stranger)
    with pytest.raises(Failure, match="this one won later"):
        Models(uri, stored, "tiny", sweep_id(stored, "tiny")).register(arm)


def test_a_process_without_the_package_is_told_what_to_install(tmp_path: Path) -> None:
    shutil.copy(descent_sweep_loader.__file__, tmp_path)
    code = "import descent_sweep_loader as loader; loader._load_pyfunc('model')"
    ran = subprocess.run(  # -S: without what is installed; -E: without PYTHONPATH
        [sys.executable, "-S", "-E", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert "this model needs the Python package descent-sweep" in ran.stderr
    assert "No module named 'trainables'" in ran.stderr


def test_requirements_are_exact_and_leave_out_what_no_index_has() -> None:
    required = dict(line.split("==") for line in requirements(ArmConfig()))
    assert required["torch"] == torch.__version__.partition("+")[0]
    assert not {"descent-sweep", "peft"} & required.keys()
    low = ModelConfig(name="decoder", checkpoint="someone/llama", lora_rank=2)
    adapted = requirements(
        ArmConfig(task="instruction_tuning", model=low, data=DataConfig(name="alpaca"))
    )
    assert adapted[-1].startswith("peft==0.21")
