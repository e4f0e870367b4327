"""Decoders from Hugging Face: Llama, Qwen, Gemma, GPT-2 and others.

    X_0 = embedding,   X_l = block_l(X_{l-1}),   logits_l = head(norm(X_l))

with the network's own final norm and head, shared by all layers (arXiv 2601.17257, section 6: the
head on every layer; that the norm comes before it on inner layers is our reading). transformers
gives the last state normed; here it is the state before the norm, as all others.

Whether a checkpoint can be read so is seen from what it does, not from a list of names: on a few
tokens logits_L must be the network's own, and no token may see those after it.

With the variant ``blocks`` weights are the checkpoint's. With ``scratch`` its folder holds a
configuration and a tokenizer, and weights are drawn as the architecture draws them, keyed by the
seed; words alike for all seeds, since they give the noise its unit. The words that are disturbed
stay as they start (docs/decisions/0038); all else is trained, the head too, where it starts as the
words' table.

Dropout is off in training too: the network that is trained is the one that is judged.

Shape suffixes: B batch, T tokens, A answer tokens, H width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._guards import detect_fake_mode

from trainables.checkpoints import Checkpoint
from trainables.config.arm import ArmConfig
from trainables.errors import InvalidValue
from trainables.heads.logits import Logits
from trainables.models.base import TextInputs, WithVocabulary
from trainables.models.pretrained import blocks_of, prepare, require_words
from trainables.models.readout import NEEDS
from trainables.random_keys import keyed_generator

_WORDS_STD = 0.02  # from scratch, where the configuration does not say
_TOLERANCE = 1e-4  # relative and absolute, of logits in float32


class Decoder(nn.Module):
    """Word embeddings [B, T, H] to L + 1 predictions: logits that are read off where asked."""

    def __init__(self, network: Any, norm: nn.Module, *, softcap: float | None = None) -> None:
        """Take over a causal network of transformers; its head and final norm serve all layers."""
        super().__init__()
        table = network.get_input_embeddings()
        with torch.no_grad():  # through the module, which may scale: Gemma's does
            words_VH = table(torch.arange(table.num_embeddings))
        self.words: Tensor
        self.register_buffer("words", words_VH, persistent=False)
        if network.get_output_embeddings().weight is not table.weight:
            network.set_input_embeddings(nn.Module())  # unless it is the head, nobody reads it
        self.network = network
        self.softcap = softcap
        self._before_norm: list[Tensor] = []
        self._norm = [norm]  # not a submodule of its own: its parameters are the network's
        norm.register_forward_pre_hook(self._keep)

    def _keep(self, _: nn.Module, given: tuple[Tensor, ...]) -> None:
        self._before_norm.append(given[0])

    def blocks(self) -> Sequence[nn.Module]:
        """The transformer's."""
        return blocks_of(self.network.base_model)

    def embed(self, ids: Tensor) -> Tensor:
        """Clean word embeddings [B, T, H] of token ids [B, T], as the first block takes them."""
        return nn.functional.embedding(ids, self.words)

    def states(self, inputs: TextInputs) -> list[Tensor]:
        """L + 1 states [B, T, H] before the final norm: the embedding, and every block's output."""
        self._before_norm.clear()  # of a pass that failed: its state is another batch's
        output = self.network.base_model(
            inputs_embeds=inputs.embeddings,
            output_hidden_states=True,  # no mask: no token sees the padding behind it. Without one
            # transformers waits for the device once, to see whether texts are packed; with one, too
            use_cache=False,
        )
        return [*output.hidden_states[:-1], self._before_norm.pop()]

    def features(self, inputs: TextInputs) -> list[Tensor]:
        """The states of layers 0..L at ``inputs.places``, [B, A, H] each; of all tokens if None."""
        states = self.states(inputs)
        if inputs.places is None:
            return states
        places = inputs.places.unsqueeze(-1)
        return [state.gather(1, places.expand(-1, -1, state.shape[-1])) for state in states]

    def readout(self, features: Tensor) -> Logits:
        """Logits [B, A, V] of states [B, A, H] before the norm, which are not computed yet."""
        head = self.network.get_output_embeddings()
        normed = self._norm[0](features)
        self._before_norm.clear()  # the norm's hook has kept these features, too
        device = normed.device.type
        narrow = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        return Logits(normed, head.weight, getattr(head, "bias", None), self.softcap, narrow)

    def forward(self, inputs: TextInputs) -> list[Logits]:
        """L + 1 predictions in reading order."""
        return [self.readout(feature) for feature in self.features(inputs)]

    @torch.no_grad()
    def write(
        self, ids: Sequence[int], *, end: int, most: int, noise: Callable[[int], Tensor] | None
    ) -> list[int]:
        """The likeliest tokens after some others, one by one: see ``Writer``."""
        device = self.words.device
        given, cache, written = torch.tensor(list(ids), device=device), None, list[int]()
        place = 0
        while len(written) < most:
            embeddings = self.embed(given[None])
            if noise is not None:
                drawn = [noise(place + k) for k in range(len(given))]
                embeddings = embeddings + torch.stack(drawn).to(embeddings)
            place += len(given)
            output = self.network.base_model(
                inputs_embeds=embeddings, past_key_values=cache, use_cache=True
            )
            cache = output.past_key_values
            head = self.network.get_output_embeddings()
            token = int(head(output.last_hidden_state[:, -1]).argmax())  # a cap keeps the order
            if token == end:
                break
            written.append(token)
            given = torch.tensor([token], device=device)
        self._before_norm.clear()
        return written

    def train(self, mode: bool = True) -> Decoder:
        """As every module, but the network stays in eval mode: no dropout, in either arm."""
        super().train(mode)
        self.network.eval()
        return self


def build(config: ArmConfig, task: WithVocabulary) -> Decoder:
    """The run's network at its start.

    Raises:
        UnknownName, BadData: as ``Checkpoint``.
        InvalidValue: it is no decoder, ``model.layers`` or ``data.max_length`` is not for it, or
            its tokenizer has tokens that it has no word for.
    """
    model = config.model
    checkpoint = Checkpoint(str(model.checkpoint), NEEDS)
    described = checkpoint.config()
    checkpoint.check_depth(model.layers)
    if isinstance(room := getattr(described, "max_position_embeddings", None), int):
        checkpoint.check_positions(room, config.data.max_length)
    network = _network(checkpoint, described, scratch=model.variant == "scratch")
    tried = None if detect_fake_mode() is not None else _tried(network)
    norm = _final_norm(network)
    if norm is None:
        raise InvalidValue(
            f"checkpoint {checkpoint.name!r} is of type {described.model_type!r}, whose final norm "
            "was not found (one without weights, or none), so that inner layers cannot be read as "
            "the last one is. Give a decoder such as Llama, Qwen, Gemma or GPT-2."
        )
    made = Decoder(network, norm, softcap=getattr(described, "final_logit_softcapping", None))
    if tried is not None:
        _check(made, *tried, model.layers, checkpoint, described)
    require_words(model, task.vocabulary, len(made.words))
    if model.lora_rank and model.variant == "scratch":
        raise InvalidValue(
            "model.lora_rank must be 0 where model.variant is 'scratch', got "
            f"{model.lora_rank}: drawn weights would never be trained."
        )
    prepare(network, network.base_model, model)
    return made


def _network(checkpoint: Checkpoint, described: Any, *, scratch: bool) -> Any:
    """The causal network on the CPU in float32, in eval mode."""
    network = checkpoint.causal_network(drawn=scratch)
    if scratch:
        words = network.get_input_embeddings().weight
        generator = keyed_generator("cpu", "words from scratch")
        with torch.no_grad():
            drawn = torch.randn(words.shape, generator=generator)
            words.copy_(getattr(described, "initializer_range", _WORDS_STD) * drawn)
    return network


def _final_norm(network: Any) -> nn.Module | None:
    """The last module outside of the blocks whose parameters are vectors; ``_check`` tries it."""
    last = None
    for name, module in network.base_model.named_modules():
        in_block = any(part.isdigit() for part in name.split("."))
        sizes = {parameter.ndim for parameter in module.parameters()}
        if not in_block and sizes == {1}:
            last = module
    return last


@torch.no_grad()
def _tried(network: Any) -> tuple[Tensor, Tensor]:
    """Ids [2, 5] of a text, twice but for its last token, and the network's own logits of them."""
    words = network.get_input_embeddings().num_embeddings
    ids_BT = torch.randint(words, (2, 5), generator=keyed_generator("cpu", "decoder check"))
    ids_BT[1, :4] = ids_BT[0, :4]
    ids_BT[1, 4] = (ids_BT[0, 4] + 1) % words
    return ids_BT, network(input_ids=ids_BT, use_cache=False).logits.float()


@torch.no_grad()
def _check(
    made: Decoder,
    ids_BT: Tensor,
    logits_BTV: Tensor,
    layers: int,
    checkpoint: Checkpoint,
    described: Any,
) -> None:
    """InvalidValue where its predictions are not the network's own, or tokens see later ones."""

    def refused(why: str) -> InvalidValue:
        return InvalidValue(
            f"checkpoint {checkpoint.name!r} is of type {described.model_type!r} and cannot be "
            f"read as a decoder: {why}. model decoder takes Llama, Qwen, Gemma, GPT-2 and other "
            "networks whose tokens see those before them alone."
        )

    inputs = TextInputs(made.embed(ids_BT), torch.ones_like(ids_BT, dtype=torch.bool))
    states = made.states(inputs)
    if len(states) != layers + 1:
        raise refused(f"it returns {len(states)} states, not one after each of {layers} layers")
    one, other = logits_BTV[:, :4]
    if not torch.allclose(one, other, rtol=_TOLERANCE, atol=_TOLERANCE):
        raise refused("its tokens see those after them")
    ours_BTV = made(inputs)[-1].full()
    if not torch.allclose(ours_BTV, logits_BTV, rtol=_TOLERANCE, atol=_TOLERANCE):
        raise refused("its logits are more than its head on its normed last state")
