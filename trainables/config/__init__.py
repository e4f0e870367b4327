"""Configuration of an arm, section by section: the names that users' files import."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainables.config.arm import ArmConfig, DataConfig, ModelConfig
    from trainables.config.constraint import ConstraintConfig

__all__ = ["ArmConfig", "ConstraintConfig", "DataConfig", "ModelConfig"]


def __getattr__(name: str) -> Any:
    """Load a class at its first use: what it imports in turn imports modules beside it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("trainables.config.arm"), name)
