"""Decoders: each family's predictions against its own logits, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, OlmoConfig

from tests.support.data.text_checkpoints import (
    DECODERS,
    LAYERS,
    WORDS,
    decoder_config,
    tiny_decoder,
    tiny_encoder,
)
from trainables.build import build_model
from trainables.config.arm import ArmConfig
from trainables.errors import BadData, InvalidValue
from trainables.models.base import TextInputs
from trainables.models.decoder import Decoder

NORMS = {
    "llama": "model.norm", "gpt2": "transformer.ln_f", "qwen2": "model.norm",
    "gemma2": "model.norm", "gpt_neox": "gpt_neox.final_layer_norm",
}  # fmt: skip


@dataclass
class Words:
    """What a decoder asks of its task."""

    vocabulary: int = WORDS


def run(folder: Path, **fields: Any) -> ArmConfig:
    own = {
        "task": "instruction_tuning", "data.name": "alpaca", "data.max_length": 16,
        "model.name": "decoder", "model.checkpoint": str(folder), "model.layers": LAYERS,
    }  # fmt: skip
    return ArmConfig().with_fields(own | fields)


def made(folder: Path, **fields: Any) -> Decoder:
    model = build_model(run(folder, **fields), Words())
    assert isinstance(model, Decoder)
    return model


def texts() -> tuple[Tensor, Tensor]:
    """Ids of two texts, the second one padded behind 4 tokens, and their mask."""
    ids = torch.randint(WORDS, (2, 7), generator=torch.Generator().manual_seed(3))
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[1, 4:] = False
    return ids, mask


@pytest.mark.parametrize("kind", DECODERS)
def test_every_layer_is_read_by_the_networks_own_norm_and_head(kind: str, tmp_path: Path) -> None:
    model = made(tiny_decoder(tmp_path, kind))
    own = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    ids, mask = texts()
    places = torch.tensor([[0, 5], [2, 3]])
    found = [p.full() for p in model(TextInputs(model.embed(ids), mask, None, places))]
    with torch.no_grad():
        output = own(ids, attention_mask=mask.long(), output_hidden_states=True)
        norm, head = own.get_submodule(NORMS[kind]), own.get_output_embeddings()
        cap = getattr(own.config, "final_logit_softcapping", None)
        rows = torch.arange(2)[:, None]
        for layer in range(LAYERS):
            logits = head(norm(output.hidden_states[layer]))
            logits = logits if cap is None else cap * torch.tanh(logits / cap)
            torch.testing.assert_close(found[layer], logits[rows, places])
        torch.testing.assert_close(found[LAYERS], output.logits[rows, places])


def test_norms_are_of_states_before_the_norm_on_every_layer(tmp_path: Path) -> None:
    model = made(tiny_decoder(tmp_path))
    ids, mask = texts()
    states = model.features(TextInputs(model.embed(ids), mask))
    own = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    seen: list[Tensor] = []
    own.model.layers[-1].register_forward_hook(lambda _m, _i, made: seen.append(made))
    with torch.no_grad():
        own(ids, attention_mask=mask.long())
    torch.testing.assert_close(states[-1][mask], seen[0][mask])


def test_weights_are_the_checkpoints_or_drawn_by_the_seed(tmp_path: Path) -> None:
    tiny_decoder(tmp_path / "whole")
    stored = AutoModelForCausalLM.from_pretrained(tmp_path / "whole").state_dict()
    whole = made(tmp_path / "whole")
    ours = whole.network.state_dict()
    assert stored.keys() == {*ours, "model.embed_tokens.weight"}
    assert all(torch.equal(stored[name], ours[name]) for name in ours)
    assert torch.equal(whole.words, stored["model.embed_tokens.weight"])

    decoder_config(tie_word_embeddings=True).save_pretrained(tmp_path / "bare")
    scratch = {"model.variant": "scratch"}
    first, again, other = (
        nn.utils.parameters_to_vector(made(tmp_path / "bare", seed=seed, **scratch).parameters())
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    tied = [made(tmp_path / "bare", seed=seed, **scratch) for seed in (0, 1)]
    assert torch.equal(tied[0].words, tied[1].words)  # the unit of the noise
    assert torch.equal(tied[0].network.lm_head.weight, tied[0].words)
    assert not torch.equal(
        tied[0].network.model.layers[0].mlp.up_proj.weight,
        tied[1].network.model.layers[0].mlp.up_proj.weight,
    )
    with pytest.raises(BadData, match="cannot read the weights"):
        made(tmp_path / "bare")


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("bert", {}, "cannot be read as a decoder: its tokens see those after them"),
        ("bert", {"is_decoder": True}, "its logits are more than its head on its normed last"),
        ("distilbert", {}, "is of type 'distilbert', which has no head that writes the next token"),
    ],
)
def test_a_network_that_is_no_decoder_is_refused(
    kind: str, fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    tiny_encoder(tmp_path, kind, **fields)
    with pytest.raises(InvalidValue, match=message):
        made(tmp_path, **{"model.variant": "scratch"})


def test_a_final_norm_without_weights_is_refused(tmp_path: Path) -> None:
    OlmoConfig(
        vocab_size=WORDS, hidden_size=16, intermediate_size=32, num_hidden_layers=LAYERS,
        num_attention_heads=2, max_position_embeddings=24,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    ).save_pretrained(tmp_path)  # fmt: skip
    with pytest.raises(InvalidValue, match="is of type 'olmo', whose final norm was not found"):
        made(tmp_path, **{"model.variant": "scratch"})


@pytest.mark.parametrize(
    ("fields", "vocabulary", "message"),
    [
        ({"model.layers": 2}, WORDS, "model.layers must be 3, the depth of checkpoint"),
        ({"data.max_length": 25}, WORDS, "data.max_length must be at most 24, the positions"),
        ({}, WORDS + 1, f"has {WORDS + 1} tokens, but its network has words for {WORDS}"),
    ],
)
def test_what_does_not_fit_the_checkpoint_is_refused(
    fields: dict[str, Any], vocabulary: int, message: str, tmp_path: Path
) -> None:
    config = run(tiny_decoder(tmp_path), **fields)
    with pytest.raises(InvalidValue, match=message):
        build_model(config, Words(vocabulary))
