"""Training in the other processes of a gang, to where the first one says."""

from __future__ import annotations

import os
import socket

import torch

from trainables.begun_arm import built
from trainables.build import parameter_dtype
from trainables.code_version import DISTRIBUTION, training_version
from trainables.config.arm import ArmConfig
from trainables.errors import StoreError
from trainables.records.arms import ArmStore
from trainables.records.retrying import RetryingStore
from trainables.sharding.gang import Gang, found_place, is_disconnect, say_failed, say_here
from trainables.sharding.order import PeerOrder
from trainables.signs.failures import failure_text
from trainables.training import from_bytes


def follow(order: PeerOrder) -> None:
    """Train until the first process ends this one, or is gone; never returns.

    What fails here is told to the first process, whose outcome it is. The process ends at once and
    without a farewell: that is what wakes the others, and threads of gloo outlive no interpreter.
    """
    place = found_place(order.host, order.port, order.count)
    try:
        _require_code(order.code)
        config = ArmConfig.from_json(order.config)
        say_here(place, order.rank)
        gang = Gang(order.rank, order.count, place, config.device)
        _train(order, config, gang)
    except Exception as error:
        if not is_disconnect(error):
            which = f"process {order.rank + 1} of {order.count}"
            say_failed(place, which, error, failure_text(error))
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


def _train(order: PeerOrder, config: ArmConfig, gang: Gang) -> None:
    torch.set_num_threads(config.threads)  # as in the first process: the same bits
    device, dtype = torch.device(config.device), parameter_dtype(config)
    _, training = built(config, device, dtype, ranks=gang)
    if order.step >= 0:
        store = ArmStore(RetryingStore(order.root, patience_s=order.patience_s))
        checkpoint = store.newest_checkpoint(config.signature())
        if checkpoint is None or checkpoint[0] != order.step:
            there = "none" if checkpoint is None else f"that of step {checkpoint[0]}"
            raise StoreError(f"expected the checkpoint of step {order.step}, found {there}.")
        training.load_state_dict(from_bytes(checkpoint[1], device))
    while True:
        training.run_to(gang.heard())
