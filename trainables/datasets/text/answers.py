"""Tokens of prompts with their answers, for decoders."""

from __future__ import annotations

from collections.abc import Sequence

from trainables.datasets.text.examples import Example
from trainables.datasets.text.tokenizer import TokenIds, Tokenizer, read_texts, require_taken
from trainables.errors import InvalidValue

_CHUNK = 1000  # texts that are tokenized at a time: bounds memory, changes nothing


def encode_answers(tokenizer: Tokenizer, examples: Sequence[Example], max_length: int) -> TokenIds:
    """The tokens of prompts (``text``) and answers (``pair``), cut to ``max_length``.

    An example is the beginning token, if the tokenizer has one, the prompt, the answer and the end
    token. Prompt and answer are tokenized apart, so what a model writes goes on from the very
    tokens it was trained behind. ``types`` is 1 on the answer and its end, 0 before. What is too
    long loses the end of its answer, its end token first.

    Raises:
        InvalidValue: ``max_length`` exceeds what the tokenizer's model takes, or leaves some
            answer no token.
        BadData: the tokenizer fails.
    """
    require_taken(tokenizer, max_length)
    ids: list[list[int]] = []
    types: list[list[int]] = []
    cut, without_room, longest = 0, 0, 0
    for first in range(0, len(examples), _CHUNK):
        some = examples[first : first + _CHUNK]
        prompts = prompt_tokens(tokenizer, [example.text for example in some])
        answers = read_texts(tokenizer, [example.pair or "" for example in some])
        for before, answer in zip(prompts, answers, strict=True):
            room = max_length - len(before)
            if room < 1:
                without_room, longest = without_room + 1, max(longest, len(before))
                continue
            kept = [*answer, tokenizer.eos_token_id][:room]
            cut += len(kept) <= len(answer)
            ids.append([*before, *kept])
            types.append([0] * len(before) + [1] * len(kept))
    if without_room:
        raise InvalidValue(
            f"data.max_length must leave room for an answer behind its prompt, got {max_length}: "
            f"{without_room} of {len(examples)} prompts fill it. {longest + 1} gives each answer "
            "one token; give more, or shorter instructions."
        )
    return TokenIds(ids, types, cut)


def prompt_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Tokens before each answer: the beginning token, if there is one, and the prompt's."""
    begin = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    return [[*begin, *ids] for ids in read_texts(tokenizer, texts)]
