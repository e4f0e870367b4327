"""Loader that goes with every logged model: our predictor, or what to install.

MLflow copies this file into every model and imports it by its own name, wherever that is.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainables.predictors.predictor import Predictor


def _load_pyfunc(data_path: str) -> Predictor:
    """The predictor in a model's folder; MLflow asks for it by this name."""
    try:
        from trainables.predictors.predictor import Predictor
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"this model needs the Python package descent-sweep, which is not fully installed "
            f"here ({error}): install it from its repository, `pip install FOLDER`, in the version "
            "of the model's tag `descent_sweep`.",
            name=error.name,
        ) from error
    return Predictor.load(Path(data_path))
