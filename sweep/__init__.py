"""Sweeps from Python: ``run`` trains, ``load`` reads, ``sweeps`` lists.

They are imported when they are first used, so that `import sweep` costs nothing. ``sweep.run`` is a
package, too: that of the driver.
"""

from __future__ import annotations

from types import ModuleType

from sweep import run

TYPE_CHECKING = False  # that of `typing`, which would be most of the cost
if TYPE_CHECKING:
    from typing import Any

    from sweep.api.listed import sweeps
    from sweep.api.loaded import Sweep, load

__all__ = ["load", "run", "sweeps"]


class _Run(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Sweep:
        """Train a search space here: ``sweep.api.running.run``."""
        from sweep.api.running import refuse_unknown, run

        refuse_unknown(options)
        return run(*args, **options)


run.__class__ = _Run


def __getattr__(name: str) -> Any:
    if name == "load":
        from sweep.api.loaded import load

        return load
    if name == "sweeps":
        from sweep.api.listed import sweeps

        return sweeps
    raise AttributeError(f"module 'sweep' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The names that a notebook completes, before any of them is imported."""
    return sorted(__all__)
