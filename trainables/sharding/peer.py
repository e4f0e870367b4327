"""Training in the other processes of a gang, to where the first one says."""

from __future__ import annotations

import os
import socket

import torch

from trainables.arm_run import built, why_failed
from trainables.build import parameter_dtype
from trainables.code_version import DISTRIBUTION, training_version
from trainables.config.arm import ArmConfig
from trainables.errors import StoreError
from trainables.records.arms import ArmStore
from trainables.records.retrying import RetryingStore
from trainables.sharding.gang import (
    Gang,
    found_place,
    is_disconnect,
    say_failed,
    say_here,
)
from trainables.sharding.told import Told
from trainables.training import from_bytes


def follow(told: Told) -> None:
    """Train until the first process ends this one, or is gone; never returns.

    What fails here is told to the first process, whose outcome it is. The process ends at once and
    without a farewell: that is what wakes the others, and threads of gloo outlive no interpreter.
    """
    place = found_place(told.host, told.port, told.count)
    try:
        _require_code(told.code)
        config = ArmConfig.from_json(told.config)
        say_here(place, told.rank)
        gang = Gang(told.rank, told.count, place, config.device)
        _train(told, config, gang)
    except Exception as error:
        if not is_disconnect(error):
            which = f"process {told.rank + 1} of {told.count}"
            say_failed(place, which, error, why_failed(error))
    finally:
        os._exit(0)


def _require_code(firsts: str) -> None:
    """Raise StoreError, which costs no arm, unless the first process has the code that is here."""
    if firsts != training_version():
        raise StoreError(
            f"{socket.gethostname()} has other code ({DISTRIBUTION} {training_version()}) than the "
            f"machine of the arm's first process ({firsts}). Install the same on every machine "
            "(`sweep doctor` names those that differ); then resume the sweep."
        )


def _train(told: Told, config: ArmConfig, gang: Gang) -> None:
    torch.set_num_threads(config.threads)
    device, dtype = torch.device(config.device), parameter_dtype(config)
    _, training = built(config, device, dtype, ranks=gang)
    if told.step >= 0:
        store = ArmStore(RetryingStore(told.root, patience_s=told.patience_s))
        found = store.newest_checkpoint(config.signature())
        if found is None or found[0] != told.step:
            there = "none" if found is None else f"that of step {found[0]}"
            raise StoreError(f"expected the checkpoint of step {told.step}, found {there}.")
        training.load_state_dict(from_bytes(found[1], device))
    while True:
        training.run_to(gang.heard())
