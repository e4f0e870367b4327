"""Logged models: winners as MLflow pyfunc models, each registered exactly once.

A model belongs to its arm's own run. In the registry it is a version under the name of its sweep
and setting, and an alias says which version is the winner's now. Every step asks first what is
there, so that a second call, or one after a kill, adds only what is missing.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.study.advice import command
from sweep.study.feasibility import Judgement
from sweep.study.pairs import Pair, ProposalResult
from sweep.tracking import descent_sweep_loader
from sweep.tracking.address import TrackingError, is_server, shown, trouble
from sweep.tracking.client import SWEEP_ID, find_experiment, foreign_errors, make_client
from sweep.tracking.client import run_ids as runs_of
from sweep.tracking.rows import params_of
from sweep.tracking.tracker import Tracker
from trainables.code_version import training_version
from trainables.config.arm import ArmConfig
from trainables.errors import Failure, Misuse
from trainables.machine import scratch
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel
    from mlflow.models import ModelSignature

    from trainables.predictors.predictor import Predictor

# At the versions that are installed here; descent-sweep itself is asked for by the loader.
REQUIRED = ("mlflow", "numpy", "pandas", "torch", "transformers")
_SIGNATURE = "signature"  # the arm's, as a tag


@dataclass(frozen=True)
class ModelArm:
    """One arm whose network is to be a model."""

    setting: str
    proposal: int
    record: ArmRecord
    judgement: Judgement | None  # under the pair's constraint

    @property
    def alias(self) -> str:
        """Alias of its version."""
        return "winner" if self.record.config.constraint is not None else "unconstrained"

    def tags(self) -> dict[str, str]:
        """Tags that tell this model from others in MLflow's tables."""
        record, judged = self.record, self.judgement
        measured, verdict = {}, {}
        if record.evaluation is not None:
            measured = {"objective": f"{record.evaluation.objective:.6g}"}
        if judged is not None:
            is_feasible = "yes" if judged.feasible else "no"
            verdict = {"feasible": is_feasible, "missing_share": f"{judged.worst:.3f}"}
        return {
            "setting": self.setting,
            "arm": record.config.arm,
            "proposal": str(self.proposal),
            "seed": str(record.config.seed),
            _SIGNATURE: record.signature,
            "descent_sweep": training_version(),
            **measured,
            **verdict,
        }


@dataclass(frozen=True)
class Registered:
    """A version in the registry."""

    name: str
    version: str
    alias: str
    is_new: bool  # whether the alias was elsewhere before

    @property
    def uri(self) -> str:
        """Address for ``mlflow.pyfunc.load_model``."""
        return f"models:/{self.name}@{self.alias}"


def arms_of(setting: str, winner: ProposalResult, *, both: bool) -> list[ModelArm]:
    """The winner's arm that becomes a model, and if asked its baseline.

    Of several search seeds the first whose own arm is feasible: no further choice by scores.
    """
    pair = min(winner.pairs, key=lambda p: (p.outcome != "feasible", p.constrained.config.seed))
    arms = [ModelArm(setting, winner.number, pair.constrained, pair.judgement)]
    if both:
        arms.append(ModelArm(setting, winner.number, _baseline(pair), pair.unconstrained_judgement))
    return arms


def _baseline(pair: Pair) -> ArmRecord:
    plain = pair.unconstrained
    if plain is None or plain.evaluation is None:
        status = "missing" if plain is None else plain.status
        raise Misuse(
            f"the baseline of {pair.constrained.signature} has no network ({status}): "
            "leave --arm at constrained."
        )
    return plain


class Models:
    """The models of one sweep at one MLflow. Methods raise TrackingError when it is away."""

    def __init__(self, uri: str, objects: ObjectStore, sweep: str, sweep_id: str | None) -> None:
        """Find the sweep's runs; Misuse where it was never tracked, or files have no place."""
        self._uri, self._objects, self._sweep = uri, objects, sweep
        self._sync = command("sync", sweep, storage=objects.root)
        if sweep_id is None:
            raise Misuse(
                f"{sweep} was never tracked in MLflow, where a model belongs to its arm's run: "
                f"`{self._sync}` sends it, then register it."
            )
        self._sweep_id = sweep_id
        if not is_server(uri) and Tracker(uri).artifact_root is None:
            raise Misuse(
                f"MLflow's database at {shown(uri)} has no place for files, and a model is files: "
                "start a server on it (`mlflow server --backend-store-uri ... "
                "--artifacts-destination ...`) and give the server's address with --mlflow."
            )
        self._runs = runs_of(uri, sweep, sweep_id, storage=objects.root)

    def register(self, arm: ModelArm) -> Registered:
        """Have the arm's network in the registry, under its alias.

        Raises:
            Failure: its weights are not in the store.
            BadData: the files of its checkpoint are not here, or have changed.
            TrackingError: MLflow is away or refuses, or lacks the arm's run.
        """
        run_id = self._runs.get(arm.record.signature)
        if run_id is None:
            raise TrackingError(
                f"MLflow at {shown(self._uri)} lacks the run of arm {arm.record.signature}: "
                f"`{self._sync}` sends it."
            )
        try:
            return self._register(make_client(self._uri), arm, run_id)
        except foreign_errors() as error:
            raise trouble(self._uri, error) from error

    def _register(self, client: MlflowClient, arm: ModelArm, run_id: str) -> Registered:
        experiment = find_experiment(client, self._sweep, self._sweep_id)
        assert experiment is not None  # it has the run
        there = _logged(client, experiment.experiment_id, arm.record.signature, run_id)
        if there is None:
            there = self._log(client, experiment.experiment_id, arm, run_id)
        name = self._name(client, arm)
        number = _version(client, name, there)
        if number is None:
            number = self._new_version(client, name, arm, there, run_id)
        is_new = str(client.get_registered_model(name).aliases.get(arm.alias)) != number
        if is_new:
            client.set_registered_model_alias(name, arm.alias, number)
        return Registered(name, number, arm.alias, is_new)

    def _log(
        self, client: MlflowClient, experiment_id: str, arm: ModelArm, run_id: str
    ) -> LoggedModel:
        """Log the model; until its files are whole it is not READY, and the next call replaces it.

        It is loaded once, as its users will, before MLflow hears of it.
        """
        from mlflow.entities import LoggedModelOutput
        from mlflow.models import Model
        from mlflow.pyfunc import save_model

        from trainables.predictors.predictor import Predictor
        from trainables.predictors.predictor_folder import write_predictor

        logging.getLogger("mlflow.pyfunc").setLevel(logging.WARNING)  # it tells of every step
        with scratch.held_folder(kind="model-") as folder:
            data, packed = folder / "data", folder / "model"
            data.mkdir()
            write_predictor(data, arm.record, self._weights(arm))
            predictor = Predictor.load(data)
            example = predictor.example()
            made = client.create_logged_model(
                experiment_id,
                name=f"{arm.setting}-{arm.record.config.arm}".replace(".", "_"),
                source_run_id=run_id,
                tags=arm.tags(),
                params=params_of(arm.record),
                model_type=arm.record.config.model.name,
            )
            # The loader alone, and no requirement of our package: MLflow puts code_paths before
            # what is installed, and pip would fetch our name from an index where it is not ours.
            save_model(
                packed,
                loader_module=Path(descent_sweep_loader.__file__).stem,
                data_path=str(data),
                code_paths=[descent_sweep_loader.__file__],
                signature=signature_of(predictor, example),
                input_example=example,
                pip_requirements=requirements(arm.record.config),
                metadata=arm.tags(),
                mlflow_model=Model(
                    artifact_path=made.artifact_location, run_id=run_id, model_id=made.model_id
                ),
            )
            client.log_outputs(run_id, [LoggedModelOutput(made.model_id, step=0)])
            client.log_model_artifacts(made.model_id, str(packed))
        # Last of all: the next call takes a model that is READY for whole.
        return client.finalize_logged_model(made.model_id, "READY")

    def _weights(self, arm: ModelArm) -> bytes:
        content = ArmStore(self._objects).weights(arm.record.signature)
        if content is None:
            export = command("export", self._sweep, storage=self._objects.root)
            raise Failure(
                f"the weights of arm {arm.record.signature} are not below {self._objects.root}: a "
                "sweep keeps those of the arms that win when it ends, and this one won later. "
                f"Train it again: `{export} --out DIR`, then `sweep run` on its configuration "
                "there, with a --storage of its own, and register that."
            )
        return content

    def _name(self, client: MlflowClient, arm: ModelArm) -> str:
        """The registered model of the setting, made if need be.

        A second sweep of the same name has its id in it, as its experiment does.
        """
        from mlflow.exceptions import MlflowException

        plain = f"{self._sweep}.{arm.setting}"
        for name in (plain, f"{plain}.{self._sweep_id[:8]}"):
            try:
                client.create_registered_model(
                    name,
                    tags={SWEEP_ID: self._sweep_id},
                    description=f"Networks of setting `{arm.setting}` of the sweep "
                    f"`{self._sweep}`, trained by descent-sweep. The alias `winner` is the best "
                    "feasible constrained arm's, `unconstrained` that of its baseline. The version "
                    "has its input and output.",
                )
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
            if client.get_registered_model(name).tags.get(SWEEP_ID) == self._sweep_id:
                return name
        raise TrackingError(f"MLflow at {shown(self._uri)} has other models called {plain}.")

    def _new_version(
        self, client: MlflowClient, name: str, arm: ModelArm, model: LoggedModel, run_id: str
    ) -> str:
        made = client.create_model_version(
            name,
            model.artifact_location,  # models:/ID is looked up at the environment's MLflow
            run_id=run_id,
            model_id=model.model_id,
            tags=arm.tags(),
            description=_description(arm),
        )
        link = {"mlflow.modelVersions": json.dumps([{"name": name, "version": made.version}])}
        client.set_logged_model_tags(model.model_id, link)  # what its own page shows
        return str(made.version)


def _logged(
    client: MlflowClient, experiment_id: str, signature: str, run_id: str
) -> LoggedModel | None:
    """The whole model of an arm's run; one whose files were left half-sent is deleted."""
    from mlflow.entities import LoggedModelStatus

    there = client.search_logged_models(
        [experiment_id], filter_string=f"tags.{_SIGNATURE} = '{signature}'"
    )
    ours = sorted(
        (model for model in there if model.source_run_id == run_id),
        key=lambda model: model.creation_timestamp,
    )
    for model in ours:
        if model.status == LoggedModelStatus.READY:
            return model
        client.delete_logged_model(model.model_id)
    return None


def _version(client: MlflowClient, name: str, model: LoggedModel) -> str | None:
    """The first version that is this model; None when it is not registered."""
    versions = client.search_model_versions(f"name = '{name}'")
    numbers = [int(v.version) for v in versions if v.source == model.artifact_location]
    return str(min(numbers)) if numbers else None


def _description(arm: ModelArm) -> str:
    """A version's description: what it is, and what it takes and returns."""
    from trainables.predictors.predictor import form_of

    config, tags = arm.record.config, arm.tags()
    judged = f", feasible: {tags['feasible']}" if "feasible" in tags else ""
    return (
        f"The {config.arm} arm of proposal {arm.proposal} on seed {config.seed}: "
        f"{config.model.name} with {config.model.layers} layers{judged}.\n\n{form_of(config)} The "
        f"parameter `layer`, 0 to {config.model.layers}, reads the prediction after a layer."
    )


def signature_of(predictor: Predictor, example: Any) -> ModelSignature:
    """MLflow's signature of a predictor, which is tried on ``example``."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec

    from trainables.predictors.predictor import LABEL, PAIR, SCORE, TEXT

    predicted = predictor.predict(example)
    layer = ParamSpec("layer", DataType.long, predictor.config.model.layers)
    if predictor.reads_texts:
        taken = Schema([
            ColSpec(DataType.string, TEXT), ColSpec(DataType.string, PAIR, required=False)
        ])  # fmt: skip
        scores = (ColSpec(DataType.double, f"{SCORE}{name}") for name in predictor.classes)
        returned = Schema([ColSpec(DataType.string, LABEL), *scores])
        return ModelSignature(taken, returned, ParamSchema([layer]))
    shape = predictor.shape if predicted.shape == example.shape else (-1, *predicted.shape[1:])
    given = Schema([TensorSpec(predictor.dtype, predictor.shape)])
    return ModelSignature(given, Schema([TensorSpec(predictor.dtype, shape)]), ParamSchema([layer]))


def requirements(config: ArmConfig) -> list[str]:
    """Packages that an arm's model needs besides descent-sweep, at the installed versions."""
    pins = []
    for name in (*REQUIRED, *(["peft"] if config.model.lora_rank else [])):
        with suppress(PackageNotFoundError):
            pins.append(f"{name}=={version(name).partition('+')[0]}")
    return pins
