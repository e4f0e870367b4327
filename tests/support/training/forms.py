"""Every form of the method, in a tiny run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.oracles import TINY
from trainables.config.arm import ArmConfig, ConstraintConfig

STEPS = 48
EPOCH = 12  # steps; the real task has more than a test wants to take
# The neighbour of every form: the Lagrangian with a relative signal, on multipliers that move.
PLAIN: dict[str, Any] = {
    "alpha": 0.3, "reference_loss": 0.8, "dual_lr": 0.05, "signal_clip": 0.4, "resilience": 0.3,
}  # fmt: skip
VIOLATION = {"dual_signal": "violation", "signal_clip": None}
FORMS: dict[str, dict[str, Any]] = {
    "ratio": {"form": "ratio"},
    "ratio of violations": {"form": "ratio", **VIOLATION},
    "ratio, detached": {"form": "ratio", "grad_through_previous": False},
    "ratio, virtual layer 0": {"form": "ratio", "reference": "virtual_layer0", **VIOLATION},
    "bound_zero": {"reference": "bound_zero", "reference_loss": 0.5},
    "bound_zero, ratio": {"reference": "bound_zero", "reference_loss": 0.5, "form": "ratio"},
    "every 5 steps": {"dual_every": 5, "warmup_steps": 3},
    "every 5 steps, violations": {"dual_every": 5, "dual_lr": 0.2, **VIOLATION},
    "every epoch": {"dual_every_unit": "epoch", "dual_lr": 0.2},
    "every 2 epochs": {"dual_every_unit": "epoch", "dual_every": 2, "warmup_steps": 5},
    "slack": {"resilience_form": "slack"},
    "slack, adam": {"resilience_form": "slack", "dual_optimizer": "adam"},
    "slack_restart": {"resilience_form": "slack_restart"},
    "slack_restart, adam": {"resilience_form": "slack_restart", "dual_optimizer": "adam"},
    "adamw": {"dual_optimizer": "adamw"},
    "bare_decay": {"dual_optimizer": "bare_decay", "resilience": 0.05},
    "nupi": {"dual_optimizer": "nupi", "dual_kp": 0.5},
    "nupi, seldom": {"dual_optimizer": "nupi", "dual_every": 3},
    "augmented": {"dual_optimizer": "augmented", "dual_penalty": 0.5, "warmup_steps": 3},
    "augmented, ratio": {
        "dual_optimizer": "augmented", "dual_penalty": 0.1, "dual_every": 2, "form": "ratio",
    },
    "warm-up, virtual layer 0": {"warmup_steps": 4, "reference": "virtual_layer0"},
    "all at once": {
        "form": "ratio", "reference": "bound_zero", "dual_every": 3,
        "resilience_form": "slack_restart", "warmup_steps": 5,
        "dual_optimizer": "adam", "grad_through_previous": False,
    },
}  # fmt: skip


def config_of(form: dict[str, Any], **fields: Any) -> ArmConfig:
    constraint = ConstraintConfig.from_json({**PLAIN, **form})
    common = {"dtype": "float64", "steps": STEPS, "grad_clip": 1e9, **fields}
    return replace(TINY, constraint=constraint, **common)  # type: ignore[arg-type]
