"""Text encoders from Hugging Face: DistilBERT, RoBERTa, BERT, MiniLM and others.

Layer 0 is the embedding, with positions and LayerNorm; layer l is what block l returns, the hidden
states that transformers itself gives. The paper's encoders end each block in a LayerNorm; where
an architecture has but one after the last block (ModernBERT), the last state alone is normalised.

Whether a checkpoint can be read so is seen from what it does, not from a list of names: on a few
tokens it must return L + 1 states, let every token see those after it, and none see padding.

Dropout is off in training too: layers are judged with it off, and its draws would have to be the
same for both arms.

Shape suffixes: B batch, T tokens, H width of the states, E of the words.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from trainables.checkpoints import Checkpoint
from trainables.config.arm import ArmConfig
from trainables.errors import InvalidValue
from trainables.models.base import Labelled, TextInputs
from trainables.models.pretrained import prepare
from trainables.models.readout import NEEDS, Pooling, Readout, TextClassifier, built
from trainables.random_keys import keyed_generator

_TOLERANCE = 1e-4  # relative and absolute, of states in float32: padding enters no sum at all


class EncoderStates(nn.Module):
    """Words [B, T, E] and what a pretrained network makes of them after each of its L blocks."""

    def __init__(self, blocks: nn.Module, config: Any) -> None:
        """Take over the network, which needs no words of its own from here on."""
        super().__init__()
        self.has_types = (getattr(config, "type_vocab_size", None) or 0) > 1
        # Words are a buffer of the classifier: a table here would be trained, and stored.
        blocks.set_input_embeddings(nn.Module())  # type: ignore[operator]  # of every PreTrainedModel
        self.blocks = blocks

    def forward(self, inputs: TextInputs) -> list[Tensor]:
        """L + 1 states [B, T, H]: the embedding, and every block's output."""
        types = {"token_type_ids": inputs.token_type_ids} if self.has_types else {}
        output = self.blocks(
            inputs_embeds=inputs.embeddings,
            attention_mask=inputs.attention_mask.long(),
            output_hidden_states=True,
            **types,
        )
        return list(output.hidden_states)

    def train(self, mode: bool = True) -> EncoderStates:
        """As every module, but the blocks stay in eval mode: no dropout, in either arm."""
        super().train(mode)
        self.blocks.eval()
        return self


def build(config: ArmConfig, task: Labelled) -> TextClassifier:
    """The run's network at its start, with words for all tokens of its tokenizer."""
    made = built(encoder, config, task, max_length=config.data.max_length)
    base = made.states.blocks
    prepare(base, base, config.model)
    return made


def encoder(
    checkpoint: str, *, layers: int, classes: int, pooling: Pooling, seed: int, max_length: int
) -> TextClassifier:
    """A pretrained encoder with a readout that ``seed`` keys, on the CPU in float32.

    Raises:
        UnknownName, BadData: as ``Checkpoint``.
        InvalidValue: it is no encoder of texts, or not of this depth, or has fewer positions than
            ``max_length``.
    """
    opened = Checkpoint(checkpoint, NEEDS)
    config = opened.config()
    opened.check_depth(layers)
    words_VE = opened.word_embeddings()
    states = EncoderStates(opened.network(), config)
    width = _checked_width(states, words_VE.shape[1], layers, opened, config)
    _check_length(states.blocks, max_length, opened)
    return TextClassifier(words_VE, states, Readout(width, classes, pooling, seed=seed))


@torch.no_grad()
def _checked_width(
    states: EncoderStates, words: int, layers: int, checkpoint: Checkpoint, config: Any
) -> int:
    """H, the width of the states. InvalidValue where they are not those of an encoder's layers."""

    def refused(why: str) -> InvalidValue:
        return InvalidValue(
            f"checkpoint {checkpoint.name!r} is of type {config.model_type!r} and cannot be read "
            f"as an encoder of texts: {why}. model encoder takes BERT, DistilBERT, RoBERTa and "
            "other networks whose tokens all see each other."
        )

    draws = torch.randn(3, 4, words, generator=keyed_generator("cpu", "encoder check"))
    given_BTE = draws[:1].repeat(3, 1, 1)  # a text of 3 tokens and padding, and twice the same
    given_BTE[1, 2] = draws[1, 2]  # ... but for its last token
    given_BTE[2, 3] = draws[2, 3]  # ... but for the padding
    mask_BT = torch.tensor([True, True, True, False]).expand(3, 4)
    try:
        outputs = states(TextInputs(given_BTE, mask_BT))
    except Exception as error:
        raise refused(str(error).strip().partition("\n")[0] or type(error).__name__) from error
    shapes = {tuple(state.shape[:-1]) for state in outputs}
    if len(outputs) != layers + 1 or shapes != {(3, 4)} or len({s.shape[-1] for s in outputs}) > 1:
        raise refused(f"it returns {len(outputs)} states, not one of each token after each layer")
    text, other_end, other_padding = outputs[-1]
    if torch.equal(text[0], other_end[0]):
        raise refused("its first token does not see the last one")
    if not torch.allclose(text[:3], other_padding[:3], rtol=_TOLERANCE, atol=_TOLERANCE):
        raise refused("its tokens see padding")
    return int(outputs[-1].shape[-1])


def _check_length(blocks: nn.Module, max_length: int, checkpoint: Checkpoint) -> None:
    """InvalidValue where the network has a table of positions that is too short."""
    table = getattr(getattr(blocks, "embeddings", None), "position_embeddings", None)
    if not isinstance(table, nn.Embedding):
        return  # relative or rotary positions: no limit of its own
    before = 0 if table.padding_idx is None else table.padding_idx + 1  # RoBERTa counts from 2
    checkpoint.check_positions(table.num_embeddings - before, max_length)
