"""Scope of `sweep doctor`: data sets, checkpoints and machines that it looks for."""

from __future__ import annotations

from dataclasses import dataclass

from search_spaces.space import SearchSpace
from trainables.config.arm import DataConfig, ModelConfig
from trainables.config.fields import Section


@dataclass(frozen=True)
class Requirement(Section):
    """A data set, or a checkpoint, that some arm reads."""

    task: str
    data: DataConfig | None = None
    model: ModelConfig | None = None

    @property
    def name(self) -> str:
        """The name of its check."""
        if self.data is not None:
            return f"data {self.data.name}"
        assert self.model is not None
        return f"checkpoint {self.model.checkpoint}"


@dataclass(frozen=True)
class Scope(Section):
    """Everything to check apart from the machines themselves, each at its place on them."""

    mlflow: str | None = None  # address of the MLflow server; None: where a sweep would be tracked
    folder: str | None = None  # to look for data sets in
    requirements: tuple[Requirement, ...] = ()  # of a search space
    machines: tuple[str, ...] = ()  # that should be workers, by address or name


def list_requirements(space: SearchSpace) -> tuple[Requirement, ...]:
    """Every data set and checkpoint of a space, each once."""
    requirements: dict[str, Requirement] = {}
    for setting in space.settings:
        run = space.run(setting, {}, seed=space.search_seeds[0])
        data = Requirement(run.task, data=run.data)
        requirements.setdefault(f"{data.name} {run.data.folder}", data)
        if run.model.checkpoint is not None:
            model = Requirement(run.task, model=run.model)
            requirements.setdefault(f"{model.name} {run.model.name}", model)
    return tuple(requirements.values())
