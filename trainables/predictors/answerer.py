"""A finished arm's network as a writer of answers to prompts."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trainables.build import build_model, build_task, inference_device, parameter_dtype, placed
from trainables.config.arm import ArmConfig
from trainables.errors import InvalidValue, Misuse
from trainables.evaluation.answers import LONGEST_ANSWER, answered
from trainables.layer_losses import introduce
from trainables.models.base import Writer
from trainables.records.evaluation import Answer
from trainables.tasks.base import Asks, Prompt
from trainables.training import from_bytes


class Answerer:
    """Kept network of one arm that answers prompts, with the task that it was trained on."""

    def __init__(self, config: ArmConfig, weights: bytes) -> None:
        """Load it, on a GPU where it was trained on one and there is one, else on the CPU.

        Raises:
            Misuse: networks of its kind write nothing.
            BadData, UnknownName: its data or its checkpoint are not here, or have changed.
        """
        device, dtype = inference_device(config), parameter_dtype(config)
        task = build_task(config, device, dtype)
        torch.set_num_threads(config.threads)  # as it was trained: other sums have other bits
        model = placed(config, build_model(config, task), device).eval()
        if not isinstance(task, Asks) or not isinstance(model, Writer):
            raise Misuse(f"networks of task {config.task} write no answers; decoders' do.")
        introduce(model, task)  # with the starting weights, whose embeddings are the noise's unit
        model.load_state_dict(from_bytes(weights, device)["model"])
        self._task, self._model = task, model

    def held_out(self, count: int) -> list[Prompt]:
        """At most ``count`` prompts of the dev split that nothing was selected on, if there are."""
        return self._task.unseen_prompts(count)

    def of_texts(self, texts: Sequence[tuple[str, str]]) -> list[Prompt | None]:
        """Prompts of instructions and their inputs; None for one that leaves an answer no room."""
        prompts: list[Prompt | None] = []
        for instruction, context in texts:
            try:
                prompts.append(self._task.prompt(instruction, context))
            except InvalidValue:
                prompts.append(None)
        return prompts

    def answer(self, prompt: Prompt, gamma: float, longest: int = LONGEST_ANSWER) -> Answer:
        """Answer that the network writes at a noise level, of ``longest`` tokens at most."""
        return answered(self._task, self._model, prompt, gamma, longest)
