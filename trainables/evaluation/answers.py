"""Answers that a network writes to held-out prompts."""

from __future__ import annotations

from functools import partial

from torch import nn

from trainables.config.arm import ArmConfig
from trainables.evaluation.stacked import Row
from trainables.models.base import Writer
from trainables.records.evaluation import Answer
from trainables.tasks.base import Asks, Prompt, Task, autocasting

PROMPTS = 3  # whose answers a record keeps
LONGEST_ANSWER = 128  # tokens of one of them


def written_answers(
    config: ArmConfig, task: Task, model: nn.Module | Row, split: str
) -> list[Answer]:
    """Answers that the network writes to PROMPTS held-out prompts, clean and at train_gamma.

    Empty where the task asks for no words.
    """
    if not isinstance(task, Asks) or not isinstance(model, Writer):
        return []
    return [
        answered(task, model, prompt, gamma, LONGEST_ANSWER)
        for prompt in task.prompts(split, PROMPTS)
        for gamma in sorted({0.0, config.train_gamma})
    ]


def answered(task: Asks, model: Writer, prompt: Prompt, gamma: float, longest: int) -> Answer:
    """Answer that the network writes to a prompt, with noise on all tokens, its own included.

    It stops at the end token, after ``longest`` tokens, or where the task's length is reached.
    """
    noise = partial(prompt.noise, gamma) if gamma > 0 else None
    most = min(longest, task.longest - len(prompt.ids))
    with autocasting(task, task.device):
        ids = model.write(prompt.ids, end=task.end, most=most, noise=noise)
    return Answer(
        prompt=prompt.text, reference=prompt.reference, gamma=gamma, written=task.text(ids)
    )
