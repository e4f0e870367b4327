"""Private attributes of Ray that the executor uses: one test each, which fails by its name.

Ray is pinned. Whoever raises it reads here what moved, before any sweep does.
"""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

import pytest
from ray._private import node, worker
from ray._private.authentication import authentication_token_setup
from ray._private.parameter import RayParams
from ray.experimental import internal_kv
from ray.tune import callback
from ray.tune.execution import class_cache, tune_controller

from sweep.executors import ray_cluster, ray_session, tune

# By attribute, the class or module of Ray that has it.
PRIVATE: dict[str, Any] = {
    "_tune_controller": tune_controller.TrialRunnerWrapper,
    **dict.fromkeys(
        (
            *tune.KEPT_IN,
            "_callbacks",
            "_trials",
            "_trial_to_actor",
            "_trial_metadata",
            "_staged_trials",
            "_unstage_trial_with_resources",
            "_cleanup_cached_actors",
        ),
        tune_controller.TuneController,
    ),
    **{f"_internal_kv_{verb}": internal_kv for verb in ("put", "get", "list", "del")},
    "_global_node": worker,
    "_webui_url": node.Node,
}


def defines(owner: Any, name: str) -> bool:
    """True if the source of ``owner`` sets the attribute of itself, or defines the function."""
    source = inspect.getsource(owner)
    set_there = rf"(self\.{name}\b(: [^=\n]+)? = |^ *def {name}\(|^{name}(: .+)? = )"
    return re.search(set_there, source, re.MULTILINE) is not None


@pytest.mark.parametrize("name", PRIVATE)
def test_ray_has_the_private_attribute(name: str) -> None:
    assert defines(PRIVATE[name], name)


def test_ray_has_the_private_functions_that_are_replaced_or_called() -> None:
    assert defines(callback.CallbackList, "_callbacks")
    assert "allow_graceful" in inspect.signature(node.Node.kill_all_processes).parameters
    assert inspect.signature(RayParams.__init__).parameters.keys() >= ray_session.ALONE.keys()
    assert defines(node.Node, "start_api_server")
    assert class_cache.DEFAULT_ENV_VARS.keys() == {"PL_DISABLE_FORK"}  # nothing of ours is lost
    assert "RAY_CHDIR_TO_TRIAL_DIR" in class_cache.ENV_VARS_TO_PROPAGATE
    enable = authentication_token_setup.maybe_enable_token_auth_if_token_available
    assert "warn_if_disabled" in inspect.signature(enable).parameters
    assert authentication_token_setup.logger.name


def test_every_private_attribute_that_the_executor_uses_is_listed() -> None:
    used: set[str] = set()
    for module in (tune, ray_cluster, ray_session):
        for part in ast.walk(ast.parse(inspect.getsource(module))):
            is_ours = isinstance(part, ast.Attribute) and ast.unparse(part.value) == "self"
            if isinstance(part, ast.Attribute) and re.match(r"_[a-z]", part.attr) and not is_ours:
                used.add(part.attr)
    assert used == set(PRIVATE) - set(tune.KEPT_IN)
