"""UT for texts against its equations written out token by token, and its start."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.support.data.checkpoints import tiny_vit
from tests.support.data.text_checkpoints import KINDS, WORDS, tiny_encoder
from trainables.errors import InvalidValue, UnknownName
from trainables.models.base import TextInputs
from trainables.models.readout import Pooling, TextClassifier
from trainables.models.text_ut import TextUTLayer, text_ut

CLASSES = 3
LENGTHS = (6, 4, 1)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("distilbert"))


def built(
    checkpoint: Path, layers: int = 3, pooling: Pooling = "mean", seed: int = 0
) -> TextClassifier:
    return text_ut(str(checkpoint), layers=layers, classes=CLASSES, pooling=pooling, seed=seed)


def inputs_of(model: TextClassifier, noise: float = 0.3) -> TextInputs:
    """Three texts, padding behind them; noise everywhere, in padding far off."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, WORDS, (len(LENGTHS), max(LENGTHS)), generator=generator)
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS).unsqueeze(1)
    words = model.embed(ids)
    draws = torch.randn(words.shape, generator=generator, dtype=words.dtype)
    return TextInputs(words + draws * torch.where(mask.unsqueeze(-1), noise, 50.0), mask)


def all_of(model: TextClassifier, inputs: TextInputs) -> Tensor:
    with torch.no_grad():
        return torch.stack(model(inputs))


def test_layers_are_the_equations_written_out_token_by_token(checkpoint: Path) -> None:
    """(47), (48) and the readout with columns as in the paper, one text and one token at a time."""
    model = built(checkpoint).double()
    inputs = inputs_of(model)
    found = all_of(model, inputs)
    for text, length in enumerate(LENGTHS):
        tokens = [inputs.embeddings[text, t] for t in range(length)]
        for depth in range(4):
            if depth:
                layer = model.states.layers[depth - 1]  # type: ignore[index, union-attr]
                v, m = layer.projection.detach(), layer.mixing.detach()
                w = (m + m.T) / 2
                after = []
                for query in tokens:
                    scores = [float((v @ query) @ (v @ key)) for key in tokens]
                    shares = [math.exp(s - max(scores)) for s in scores]
                    z = sum((s * x for s, x in zip(shares, tokens, strict=True)), 0 * query)
                    after.append((w @ (z / sum(shares)) + query).clamp(min=0))
                tokens = after
            mean = torch.stack(tokens).mean(0)
            expected = model.readout.weight.detach() @ mean + model.readout.bias.detach()
            torch.testing.assert_close(found[depth, text], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_no_prediction_depends_on_what_stands_in_padding(
    checkpoint: Path, pooling: Pooling, dtype: str
) -> None:
    model = built(checkpoint, pooling=pooling)
    model = model.to(torch.float64 if dtype == "float64" else torch.float32)
    given = inputs_of(model)
    emptied = given.embeddings.masked_fill(~given.attention_mask.unsqueeze(-1), 0)
    assert not torch.equal(emptied, given.embeddings)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
        disturbed = all_of(model, given)
        clean = all_of(model, TextInputs(emptied, given.attention_mask))
    assert disturbed.dtype == (torch.float64 if dtype == "float64" else torch.float32)
    assert torch.equal(clean, disturbed)


def test_a_text_scores_the_same_alone_and_beside_longer_ones(checkpoint: Path) -> None:
    model = built(checkpoint)
    given = inputs_of(model)
    together = all_of(model, given)
    for text, length in enumerate(LENGTHS):
        rows = slice(text, text + 1)
        alone = TextInputs(given.embeddings[rows, :length], given.attention_mask[rows, :length])
        torch.testing.assert_close(  # float32 sums over other numbers of zeros
            together[:, rows], all_of(model, alone), rtol=1e-5, atol=1e-6
        )


def test_scores_are_not_rounded_under_autocast() -> None:
    """Two words whose scores, 256 and 257, bfloat16 cannot tell apart."""
    layer = TextUTLayer(8, torch.Generator().manual_seed(0))
    with torch.no_grad():
        layer.projection.copy_(torch.eye(8))
        layer.mixing.copy_(torch.eye(8))
    words = torch.zeros(1, 2, 8)
    words[0, :, 0] = 16.0
    words[0, 1, 1] = 1.0  # x_1 . x_0 = 256, x_1 . x_1 = 257: fractions of 0.269 and 0.731
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = layer(words, torch.ones(1, 2, dtype=torch.bool))
    # coordinate 1 of the second word is 1 + its own share; 8 bits of a product near 1 are 0.004
    assert float(found[0, 1, 1]) == pytest.approx(1 + 1 / (1 + math.exp(-1)), abs=0.008)


def test_gradients_reach_every_layer(checkpoint: Path) -> None:
    model = built(checkpoint)
    sum(p.square().sum() for p in model(inputs_of(model))).backward()
    named = dict(model.named_parameters())
    assert len(named) == 2 * 3 + 2
    for name, parameter in named.items():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_the_start_is_keyed_by_the_seed_and_the_layer(checkpoint: Path) -> None:
    before = torch.get_rng_state()
    shallow, deep, other = built(checkpoint), built(checkpoint, layers=5), built(checkpoint, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    ours, more, theirs = (m.state_dict() for m in (shallow, deep, other))
    assert set(ours) < set(more)
    assert all(torch.equal(weights, more[name]) for name, weights in ours.items())
    starts = [weights for name, weights in ours.items() if name != "readout.bias"]
    assert not any(
        torch.equal(weights, theirs[name])
        for name, weights in ours.items()
        if name != "readout.bias"
    )
    bound = math.sqrt(6 / (16 + 16))  # Xavier: U(-b, b) with b^2 = 6 / (in + out)
    matrices = torch.stack([weights for weights in starts if weights.shape == (16, 16)])
    assert len({float(m[0, 0]) for m in matrices}) == 6
    assert matrices.abs().max() <= bound
    assert float(matrices.var()) == pytest.approx(bound**2 / 3, rel=0.1)  # of 1,536 draws


def test_words_are_the_checkpoints_whatever_its_kind(tmp_path: Path) -> None:
    from transformers import AutoModel

    for kind in ("distilbert", "roberta", "electra", "modernbert"):
        folder = tiny_encoder(tmp_path / kind, kind)
        model = built(folder)
        words = AutoModel.from_pretrained(folder).get_input_embeddings().weight
        assert torch.equal(model.embed(torch.arange(WORDS)), words.detach())
        assert model.readout.weight.shape == (CLASSES, words.shape[1])
        assert not any("words" in name for name in model.state_dict())
    assert set(KINDS) > {"electra"}  # whose words are narrower than its states: 8, not 16


def test_the_mean_over_nothing_but_words_forgets_their_order(checkpoint: Path) -> None:
    model = built(checkpoint).double()
    ids = torch.tensor([[3, 4, 5, 6]])
    mask = torch.ones(1, 4, dtype=torch.bool)
    forward, backward = (
        all_of(model, TextInputs(model.embed(i), mask)) for i in (ids, ids.flip(1))
    )
    torch.testing.assert_close(forward, backward)


def test_checkpoints_without_words_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="no plain table of word embeddings"):
        built(tiny_vit(tmp_path))
    with pytest.raises(UnknownName, match="hf download distilbert-base-uncased"):
        built(Path("distilbert-base-uncased"))
