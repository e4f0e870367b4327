"""Encoders against heads made by hand on transformers' own hidden states, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    FNetConfig,
    GPT2Config,
    T5Config,
)

from tests.support.data.checkpoints import tiny_vit
from tests.support.data.text_checkpoints import KINDS, LAYERS, WORDS, tiny_encoder, write
from trainables.checkpoints import Checkpoint
from trainables.errors import BadData, InvalidValue, UnknownName
from trainables.models.base import TextInputs
from trainables.models.encoder import EncoderStates, _checked_width, encoder
from trainables.models.readout import Pooling, TextClassifier

CLASSES = 3
LENGTHS = (7, 4, 1)  # tokens of three texts; the first fills its batch


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("encoders")
    return {kind: tiny_encoder(root / kind, kind) for kind in KINDS}


@pytest.fixture(params=sorted(KINDS))
def checkpoint(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Path:
    return folders[request.param]


@pytest.fixture
def copied(folders: dict[str, Path], tmp_path: Path) -> Path:
    """A checkpoint of this test's own, to damage."""
    return Path(shutil.copytree(folders["distilbert"], tmp_path / "copy"))


def loaded(checkpoint: Path | str, pooling: Pooling = "cls", **options: Any) -> TextClassifier:
    given: dict[str, Any] = {"layers": LAYERS, "classes": CLASSES, "seed": 0, "max_length": 16}
    return encoder(str(checkpoint), pooling=pooling, **(given | options))


def texts(padding_id: int = 0, width: int = max(LENGTHS)) -> tuple[Tensor, Tensor]:
    """Token ids and mask of three texts, [3, width]."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, WORDS, (len(LENGTHS), width), generator=generator)
    mask = torch.arange(width) < torch.tensor(LENGTHS).unsqueeze(1)
    return ids.masked_fill(~mask, padding_id), mask


def inputs_of(model: TextClassifier, padding_id: int = 0) -> TextInputs:
    ids, mask = texts(padding_id)
    return TextInputs(model.embed(ids), mask)


def noisy(inputs: TextInputs) -> TextInputs:
    """Every number in padding replaced by others, far off."""
    draws = 50 * torch.randn(inputs.embeddings.shape, generator=torch.Generator().manual_seed(1))
    kept = inputs.attention_mask.unsqueeze(-1)
    filled = torch.where(kept, inputs.embeddings, draws.to(inputs.embeddings.dtype))
    return TextInputs(filled, inputs.attention_mask, inputs.token_type_ids)


def all_of(model: TextClassifier, inputs: TextInputs) -> Tensor:
    """Predictions of all layers, [L + 1, B, C]."""
    with torch.no_grad():
        return torch.stack(model(inputs))


# --- what is computed -----------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_every_readout_is_a_head_made_by_hand_on_transformers_own_states(
    checkpoint: Path, pooling: Pooling
) -> None:
    model = loaded(checkpoint, pooling)
    reference = AutoModel.from_pretrained(checkpoint).eval()
    padding_id = reference.config.pad_token_id or 0
    ids, mask = texts(padding_id)
    with torch.no_grad():
        states = reference(
            input_ids=ids, attention_mask=mask.long(), output_hidden_states=True
        ).hidden_states
    predictions = all_of(model, TextInputs(model.embed(ids), mask))
    assert len(predictions) == len(states) == LAYERS + 1
    weight, bias = model.readout.weight.detach(), model.readout.bias.detach()
    for prediction, state in zip(predictions, states, strict=True):
        for text, length in enumerate(LENGTHS):
            tokens = [state[text, t] for t in range(length)]
            pooled = tokens[0] if pooling == "cls" else sum(tokens, torch.zeros(16)) / length
            by_hand = [float((weight[c] * pooled).sum() + bias[c]) for c in range(CLASSES)]
            torch.testing.assert_close(  # sums in another order, nothing else
                prediction[text], torch.tensor(by_hand), rtol=1e-5, atol=1e-5
            )


def test_the_last_readout_is_that_of_transformers_own_classifier(tmp_path: Path) -> None:
    """DistilBERT's head is linear where its hidden layer is the identity on positive numbers."""
    folder = tiny_encoder(tmp_path)
    reference = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=CLASSES)
    model = loaded(folder)
    with torch.no_grad():
        shift = 100.0  # past the ReLU, and taken back by the head's bias
        reference.pre_classifier.weight.copy_(torch.eye(16))
        reference.pre_classifier.bias.fill_(shift)
        reference.classifier.weight.copy_(model.readout.weight)
        reference.classifier.bias.copy_(-shift * model.readout.weight.sum(1))
        ids, mask = texts()
        expected = reference.eval()(input_ids=ids, attention_mask=mask.long()).logits
    found = all_of(model, TextInputs(model.embed(ids), mask))[-1]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)  # 100 +- in float32


def test_types_of_tokens_reach_networks_that_have_them(folders: dict[str, Path]) -> None:
    ids, mask = texts()
    types = (torch.arange(ids.shape[1]) > 1).long().expand_as(ids)
    for kind, has_them in [("bert", True), ("distilbert", False), ("roberta", False)]:
        model = loaded(folders[kind])
        words = model.embed(ids)
        without, given = TextInputs(words, mask), TextInputs(words, mask, types)
        assert torch.equal(all_of(model, without), all_of(model, given)) is not has_them
    reference = AutoModel.from_pretrained(folders["bert"]).eval()
    model = loaded(folders["bert"])
    with torch.no_grad():
        state = reference(ids, mask.long(), token_type_ids=types).last_hidden_state
        expected = model.readout(state[:, 0])
    found = all_of(model, TextInputs(model.embed(ids), mask, types))[-1]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_no_prediction_depends_on_what_stands_in_padding(checkpoint: Path, dtype: str) -> None:
    model = loaded(checkpoint, "mean").to(torch.float64 if dtype == "float64" else torch.float32)
    given = inputs_of(model)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
        clean, disturbed = all_of(model, given), all_of(model, noisy(given))
    assert torch.equal(clean, disturbed)  # masked scores are exact zeros after the softmax


def test_more_padding_changes_no_prediction(checkpoint: Path) -> None:
    model = loaded(checkpoint, "mean")
    (short_ids, short), (_, mask) = texts(), texts(width=12)
    ids = torch.cat([short_ids, torch.zeros(3, 5, dtype=torch.int64)], dim=1)
    wide = all_of(model, TextInputs(model.embed(ids), mask))
    narrow = all_of(model, TextInputs(model.embed(short_ids), short))
    alone = all_of(model, TextInputs(model.embed(short_ids[1:2, :4]), short[1:2, :4]))
    tolerance = {"rtol": 1e-5, "atol": 1e-5}  # float32 sums over other numbers of zeros
    torch.testing.assert_close(wide, narrow, **tolerance)
    torch.testing.assert_close(wide[:, 1:2], alone, **tolerance)


def test_gradients_reach_every_layer_and_no_word(checkpoint: Path) -> None:
    model = loaded(checkpoint, "mean")
    given = inputs_of(model)
    sum(p.square().sum() for p in model(given)).backward()
    assert not given.embeddings.requires_grad
    assert not any(name.endswith(("words", "word_embeddings.weight")) for name in parameters(model))
    for name, parameter in parameters(model).items():
        if not adds_the_same_to_every_score(name):
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name


def parameters(model: nn.Module) -> dict[str, Tensor]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def adds_the_same_to_every_score(name: str) -> bool:
    """The bias of keys, which a softmax does not see."""
    return name.endswith(("key.bias", "k_lin.bias", "attn.k.bias", "key_proj.bias"))


def test_bfloat16_is_near_float32_and_the_readout_is_not_rounded(checkpoint: Path) -> None:
    model = loaded(checkpoint, "mean")
    exact = all_of(model, inputs_of(model))
    with torch.autocast("cpu", torch.bfloat16):
        rounded = all_of(model, inputs_of(model))
    assert rounded.dtype == exact.dtype == torch.float32
    assert not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, rtol=0.05, atol=0.1)  # 8 bits, three blocks
    assert (rounded != rounded.bfloat16().float()).any()


def test_attention_is_pytorchs_scaled_dot_product(folders: dict[str, Path]) -> None:
    for kind in ("bert", "distilbert", "roberta"):
        states = loaded(folders[kind]).states
        assert isinstance(states, EncoderStates)
        assert states.blocks.config._attn_implementation == "sdpa"  # type: ignore[union-attr]


def test_dropout_of_the_checkpoint_is_off_in_training_too(tmp_path: Path) -> None:
    folder = tiny_encoder(tmp_path, dropout=0.5, attention_dropout=0.5)
    model = loaded(folder)
    given = inputs_of(model)
    in_training = all_of(model.train(), given)
    assert torch.equal(in_training, all_of(model.train(), given))
    assert torch.equal(in_training, all_of(model.eval(), given))
    assert model.train().training


def test_two_loads_start_alike_and_the_seed_keys_the_readout_alone(checkpoint: Path) -> None:
    before = torch.get_rng_state()
    ours, theirs, other = loaded(checkpoint), loaded(checkpoint), loaded(checkpoint, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    for name, parameter in ours.state_dict().items():
        assert torch.equal(parameter, theirs.state_dict()[name])
        differs = name == "readout.weight"
        assert torch.equal(parameter, other.state_dict()[name]) is not differs
    assert torch.equal(ours.words, other.words)


def test_saving_and_loading_is_exact_and_leaves_the_words_to_the_checkpoint(
    checkpoint: Path,
) -> None:
    model = loaded(checkpoint)
    given = inputs_of(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sum(p.square().sum() for p in model(given)).backward()
    optimizer.step()
    restored = loaded(checkpoint, seed=5)
    assert not torch.equal(all_of(model, given), all_of(restored, given))
    restored.load_state_dict(model.state_dict())
    assert torch.equal(all_of(model, given), all_of(restored, given))
    assert not [name for name, w in model.state_dict().items() if len(w) == WORDS]


# --- checkpoints that are refused -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (GPT2Config(vocab_size=9, n_embd=8, n_layer=3, n_head=2), "does not see the last one"),
        (
            T5Config(vocab_size=9, d_model=8, d_kv=4, d_ff=8, num_layers=3, num_heads=2),
            "of type 't5' and cannot be read as an encoder of texts",
        ),
        (
            FNetConfig(vocab_size=9, hidden_size=8, num_hidden_layers=3, intermediate_size=8),
            "its tokens see padding",
        ),
    ],
)
def test_networks_of_another_kind_are_refused(config: Any, message: str, tmp_path: Path) -> None:
    write(tmp_path, config)
    with pytest.raises(InvalidValue, match=message):
        loaded(tmp_path)


def test_states_that_are_not_one_per_layer_are_refused(folders: dict[str, Path]) -> None:
    states = loaded(folders["bert"]).states
    assert isinstance(states, EncoderStates)
    found = Checkpoint(str(folders["bert"]), ("config.json", "model.safetensors"))
    with pytest.raises(InvalidValue, match="it returns 4 states, not one of each token after each"):
        _checked_width(states, 16, LAYERS + 1, found, found.config())


def test_a_network_of_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"type 'vit', .* no plain table of word embeddings"):
        loaded(tiny_vit(tmp_path), layers=2)


def test_depth_and_length_are_the_checkpoints(folders: dict[str, Path]) -> None:
    with pytest.raises(InvalidValue, match=r"model\.layers must be 3, the depth of .*, got 12\."):
        loaded(folders["roberta"], layers=12)
    for kind, room in [("distilbert", 24), ("roberta", 22), ("mpnet", 22), ("deberta-v2", 24)]:
        assert loaded(folders[kind], max_length=room)
        with pytest.raises(InvalidValue, match=rf"data\.max_length must be at most {room}, .*25"):
            loaded(folders[kind], max_length=25)
    assert loaded(folders["modernbert"], max_length=500)


def test_a_name_that_was_never_downloaded_says_what_is_needed() -> None:
    with pytest.raises(UnknownName) as caught:
        loaded("distilbert-base-uncased")
    message = str(caught.value)
    for part in (
        "'distilbert-base-uncased'",
        "hf download distilbert-base-uncased",
        "Downloaded: none",
        "config.json and model.safetensors",
    ):
        assert part in message


@pytest.mark.parametrize(
    ("file", "what"), [("config.json", "configuration"), ("model.safetensors", "weights")]
)
def test_missing_files_are_named(copied: Path, file: str, what: str) -> None:
    (copied / file).unlink()
    with pytest.raises(BadData, match=f"cannot read the {what} of checkpoint .*copy.*safetensors"):
        loaded(copied)


def test_weights_that_lack_a_block_are_refused(copied: Path) -> None:
    weights = load_file(copied / "model.safetensors")
    left = {name: w for name, w in weights.items() if "layer.1." not in name}
    assert 0 < len(left) < len(weights)
    save_file(left, copied / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadData, match=r"lacks \d+ weights of its own network"):
        loaded(copied)


def test_a_checkpoint_with_a_head_of_pretraining_is_read_without_it(tmp_path: Path) -> None:
    """As the hub has them: roberta-base was saved with its language head and without a pooler."""
    from transformers import RobertaConfig, RobertaForMaskedLM

    config = RobertaConfig(**(KINDS["roberta"][1] | {"vocab_size": WORDS, "num_hidden_layers": 3}))
    with torch.random.fork_rng(devices=[]):
        pretrained = RobertaForMaskedLM(config).eval()
    pretrained.save_pretrained(tmp_path)
    model = loaded(tmp_path)
    ids, mask = texts(padding_id=1)
    with torch.no_grad():
        state = pretrained.roberta(ids, mask.long()).last_hidden_state
        expected = model.readout(state[:, 0])
    found = all_of(model, TextInputs(model.embed(ids), mask))[-1]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
