"""Contract of models: L + 1 predictions, keyed starts, gradients, exact saving.

Shape suffixes: F predictions of layers 0..L, B samples.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from trainables.arm_run import ArmRun
from trainables.build import parameter_dtype
from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import gamma_key
from trainables.evaluation.measuring import measure
from trainables.heads.logits import Logits
from trainables.layer_losses import last_loss, layer_losses, layer_predictions
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.tasks.base import LabelTask, Tokens
from trainables.training import from_bytes, to_bytes
from trainables_testing.promises import BrokenContract, check, in_both_types, require_kept
from trainables_testing.tiny_runs import (
    CPU,
    as_tensor,
    global_seed,
    model_of,
    moved,
    stacked,
    task_of,
    tensors_in,
    training_of,
)


def check_model(config: ArmConfig) -> None:
    """Every promise of a model, in float32 and bfloat16.

    Args:
        config: a constrained run of two steps or more, with small data and batches.

    Raises:
        BrokenContract: a promise is not kept.
        Misuse: the run cannot be built. What the model's own code raises comes through.
    """
    for one in in_both_types(config):
        check(f"model {one.model.name} ({one.model.variant}, {one.dtype})", MODEL, one)


def a_prediction_after_every_layer(config: ArmConfig) -> None:
    """L + 1 of them, in reading order, finite, of the targets' shape, or logits for each."""
    task = task_of(config)
    batch, model = task.train_batch(0), moved(model_of(config, task))
    predictions = layer_predictions(model, task, batch)
    count = config.model.layers + 1
    require_kept(
        len(predictions) == count, f"there must be L + 1 = {count} predictions", len(predictions)
    )
    shape = batch.targets.shape
    if isinstance(task, LabelTask):
        shape = torch.Size((config.batch_size, task.classes))
    for layer, found in enumerate(predictions):
        prediction = as_tensor(found)
        if isinstance(found, Logits):
            shape = torch.Size((*batch.targets.shape, len(found.weight)))
        of = f"the prediction of layer {layer}"
        require_kept(
            prediction.shape == shape, f"{of} must be {list(shape)}", list(prediction.shape)
        )
        require_kept(bool(torch.isfinite(prediction).all()), f"{of} must be finite")


def start_and_forward_are_the_same_whatever_the_global_seed(config: ArmConfig) -> None:
    """Two builds predict alike, twice: a forward pass draws nothing and leaves nothing behind."""
    outputs = []
    for seed in (1, 2):
        with global_seed(seed):
            task = task_of(config)
            batch, model = task.train_batch(0), model_of(config, task).train()
            for _ in range(2):
                outputs.append(stacked(layer_predictions(model, task, batch)))
    require_kept(
        all(torch.equal(outputs[0], other) for other in outputs[1:]),
        "the start and the forward pass must depend on the configuration alone: two networks of "
        "one run predict differently, or one does when asked again",
    )


def parameters_and_losses_are_in_float32(config: ArmConfig) -> None:
    """So are gradients and all that is kept between steps: ``dtype`` casts the forward pass."""
    task = task_of(config)
    training = training_of(config, task)
    training.run_to(1)
    wanted = parameter_dtype(config)
    found = {p.dtype for p in training.parameters}
    found |= {p.grad.dtype for p in training.parameters if p.grad is not None}
    found |= {t.dtype for t in tensors_in(training.state_dict()) if t.is_floating_point()}
    found.add(layer_losses(training.model, task, task.train_batch(0)).dtype)
    require_kept(found == {wanted}, f"all that is trained must be in {wanted}", found)


def bfloat16_changes_losses_by_little(config: ArmConfig) -> None:
    """The losses of the same weights in both types are near each other."""
    exact, rounded = (task_of(c) for c in in_both_types(config))
    model, batch = moved(model_of(config, exact)), exact.train_batch(0)
    losses, cast = (layer_losses(model, t, batch).mean(1) for t in (exact, rounded))
    # 8 bits: 2^-8 = .4 % a rounding, in a few of them, doubled by the square
    near = torch.isclose(cast, losses, rtol=0.05, atol=1e-3 * exact.scales.constant_loss)
    require_kept(
        bool(near.all()),
        f"under bfloat16 autocast losses must be near those in float32, {losses.tolist()}",
        cast.tolist(),
    )


def the_last_loss_reaches_every_parameter(config: ArmConfig) -> None:
    """Each of them is trained by plain training, too."""
    task = task_of(config)
    model = moved(model_of(config, task))
    loss = layer_losses(model, task, task.train_batch(0))[-1].mean()
    loss.backward()  # type: ignore[no-untyped-call]
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    require_kept(bool(trained), "a model must have a parameter to train")
    for name, parameter in trained:
        gradient = parameter.grad
        reached = gradient is not None and bool(gradient.isfinite().all() and gradient.any())
        require_kept(reached, f"the last layer's loss must reach every parameter, but not {name}")


def the_last_loss_is_the_same_when_asked_alone(config: ArmConfig) -> None:
    """To the last bit: plain training takes no other (``last`` of models/base.py)."""
    task = task_of(config)
    model, batch = moved(model_of(config, task)), task.train_batch(0)
    every, alone = layer_losses(model, task, batch)[-1:], last_loss(model, task, batch)
    require_kept(torch.equal(every, alone), "the last loss must be the same when asked for alone")


def a_layers_loss_depends_on_no_later_layer(config: ArmConfig) -> None:
    """What reaches a layer's parameters reaches from every later layer's loss as well."""
    reached = parameters_by_layer(config)
    ordered = all(fewer <= more for fewer, more in itertools.pairwise(reached))
    require_kept(
        ordered,
        "the loss of a layer must depend on its own parameters and on those of layers before it",
        [len(found) for found in reached],
    )


def parameters_by_layer(config: ArmConfig) -> list[set[str]]:
    """Of the loss of each layer 0..L, the names of the parameters that it depends on."""
    task = task_of(config)
    model = moved(model_of(config, task))
    losses_F = layer_losses(model, task, task.train_batch(0)).mean(1)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    reached: list[set[str]] = []
    for loss in losses_F:
        if not loss.requires_grad:
            reached.append(set())
            continue
        gradients: Sequence[Tensor | None] = torch.autograd.grad(
            loss, list(trained.values()), retain_graph=True, allow_unused=True
        )
        pairs = zip(trained, gradients, strict=True)
        reached.append({name for name, g in pairs if g is not None and bool(g.any())})
    return reached


def both_arms_start_alike(config: ArmConfig) -> None:
    """With the same predictions, and the same number of parameters unless it is said otherwise."""
    task = task_of(config)
    batch = task.train_batch(0)
    ours, theirs = (model_of(c, task) for c in (config, config.unconstrained()))
    starts = [stacked(layer_predictions(model, task, batch)) for model in (ours, theirs)]
    require_kept(torch.equal(*starts), "both arms must start with one network")
    counts = [sum(p.numel() for p in m.parameters()) for m in (ours, theirs)]
    require_kept(
        (counts[0] == counts[1]) is config.matched_capacity,
        "both arms must have as many parameters",
        counts,
    )


def saving_and_loading_is_exact(config: ArmConfig) -> None:
    """Kept weights predict the same, and a resumed run trains to the same weights."""
    config = replace(config, steps=max(config.steps, 4))
    task = task_of(config)
    training = training_of(config, task)
    training.run_to(2)
    restored = model_of(config, task)
    restored.load_state_dict(from_bytes(to_bytes(training.model.state_dict()), CPU))
    batch = task.train_batch(0)
    outputs = [stacked(layer_predictions(m, task, batch)) for m in (training.model, restored)]
    require_kept(torch.equal(*outputs), "what state_dict() keeps must give the same predictions")
    resumed = training_of(config, task)
    resumed.load_state_dict(from_bytes(to_bytes(training.state_dict()), CPU))
    for arm in (training, resumed):
        arm.run_to(4)
    pairs = zip(training.parameters, resumed.parameters, strict=True)
    require_kept(
        all(torch.equal(a, b) for a, b in pairs), "a resumed run must train to the same weights"
    )


def no_prediction_depends_on_padding(config: ArmConfig) -> None:
    """Of texts: other tokens and noise in padding change nothing that comes out."""
    task = task_of(config)
    model = moved(model_of(config, task)).eval()
    for batch in task.held_out("dev", config.train_gamma, 0):
        tokens = batch.inputs
        if not isinstance(tokens, Tokens) or tokens.noise is None:
            return
        padding = ~tokens.attention_mask
        noise = tokens.noise + 3.0 * padding.unsqueeze(-1)
        others = replace(tokens, ids=tokens.ids.masked_fill(padding, 1), noise=noise)
        with torch.no_grad():
            outputs = [
                stacked(layer_predictions(model, task, replace(batch, inputs=inputs)))
                for inputs in (tokens, others)
            ]
        require_kept(torch.equal(*outputs), "no prediction may depend on what stands in padding")


def a_pair_of_arms_runs(config: ArmConfig) -> None:
    """Both train to a finished record, and the weights that they leave score what it says."""
    with tempfile.TemporaryDirectory() as folder:
        store = ArmStore(ObjectStore(Path(folder)))
        for arm_config in (config, config.unconstrained()):
            arm = ArmRun(arm_config, store)
            while not arm.advance().is_final:
                pass
            record, measured = arm.record, arm.record.evaluation
            what = f"the {arm_config.arm} arm"
            if record.status != "finished" or measured is None:
                raise BrokenContract(f"{what} must finish, but {record.status}: {record.reason}")
            require_kept(
                math.isfinite(measured.objective),
                f"{what} must have an objective",
                measured.objective,
            )
            task = task_of(arm_config)
            model = model_of(arm_config, task)
            model.load_state_dict(from_bytes(store.weights(arm.signature) or b"", CPU)["model"])
            gamma = config.test_gammas[-1]
            again = measure(model, task, "dev", gamma, 1).metrics(task)[-1]
            score = measured.scores[gamma_key(gamma)]
            require_kept(
                math.isclose(again, score, rel_tol=1e-6),
                f"the kept weights of {what} must score {score} at gamma {gamma:g}",
                again,
            )


MODEL: tuple[Callable[[ArmConfig], None], ...] = (
    a_prediction_after_every_layer,
    start_and_forward_are_the_same_whatever_the_global_seed,
    parameters_and_losses_are_in_float32,
    bfloat16_changes_losses_by_little,
    the_last_loss_reaches_every_parameter,
    the_last_loss_is_the_same_when_asked_alone,
    a_layers_loss_depends_on_no_later_layer,
    both_arms_start_alike,
    saving_and_loading_is_exact,
    no_prediction_depends_on_padding,
    a_pair_of_arms_runs,
)
