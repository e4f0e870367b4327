"""ViT against transformers' own output reshaped by hand, and every checkpoint that does not fit."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModel, BertConfig
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from tests.support.data.checkpoints import KINDS, tiny_vit
from trainables.errors import BadData, InvalidValue, UnknownName
from trainables.fetching.checkpoint_files import checkpoint_fingerprint
from trainables.models.vit import ViT

IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
# after class, distillation and four register tokens
PATCH_TOKENS_FROM = {"vit": 1, "deit": 2, "vit_msn": 1, "dinov2": 1, "dinov2_with_registers": 5}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_vit(tmp_path_factory.mktemp("vit"))


@pytest.fixture
def copied(checkpoint: Path, tmp_path: Path) -> Path:
    """A checkpoint of this test's own, to damage."""
    return Path(shutil.copytree(checkpoint, tmp_path / "copy"))


def images() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (16, 16, 3), dtype=np.uint8) for _ in range(3)]


def as_frames(pictures: list[np.ndarray]) -> Tensor:
    """[B, 3, 16, 16] in [0, 1]."""
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255


def by_hand(tokens_NH: np.ndarray, mean: list[float], std: list[float]) -> np.ndarray:
    """16 tokens of 48 = 4 x 4 x 3 as one frame [3, 16, 16] in [0, 1], number by number."""
    frame = np.zeros((3, 16, 16))
    for n, token in enumerate(tokens_NH):
        for k, value in enumerate(token):
            row, column, channel = k // 12, k // 3 % 4, k % 3
            y, x = 4 * (n // 4) + row, 4 * (n % 4) + column
            frame[channel, y, x] = value * std[channel] + mean[channel]
    return frame


# --- what is computed -----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, IMAGENET])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_readout_is_transformers_own_output_reshaped(
    kind: str, options: dict[str, Any], tmp_path: Path
) -> None:
    folder = tiny_vit(tmp_path, kind, processor=options)
    processor = ViTImageProcessorPil.from_pretrained(folder)
    reference = AutoModel.from_pretrained(folder).eval()
    outputs: list[Tensor] = []  # what goes into the first block, and what leaves each
    blocks = next(m for m in reference.modules() if isinstance(m, torch.nn.ModuleList))
    blocks[0].register_forward_pre_hook(lambda module, args: outputs.append(args[0]))
    for block in blocks:
        block.register_forward_hook(lambda module, args, output: outputs.append(output))
    with torch.no_grad():
        reference(**processor(images(), return_tensors="pt"))
        predictions = ViT(str(folder), 2, 16)(as_frames(images()))
    assert len(predictions) == len(outputs) == 3
    for prediction, state in zip(predictions, outputs, strict=True):
        tokens = state[:, PATCH_TOKENS_FROM[kind] :].numpy()
        assert tokens.shape == (3, 16, 48)
        expected = [by_hand(t, processor.image_mean, processor.image_std) for t in tokens]
        np.testing.assert_allclose(prediction.numpy(), np.stack(expected), atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [{}, IMAGENET, {"do_normalize": False}, {"do_rescale": False}, {"rescale_factor": 1 / 127.5}],
)
def test_the_encoder_sees_what_the_image_processor_makes(
    options: dict[str, Any], tmp_path: Path
) -> None:
    folder = tiny_vit(tmp_path, processor=options)
    expected = ViTImageProcessorPil.from_pretrained(folder)(images(), return_tensors="pt")
    model, seen = ViT(str(folder), 2, 16), []
    model.encoder.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["pixel_values"]), with_kwargs=True
    )
    model(as_frames(images()))
    torch.testing.assert_close(
        seen[0].double(), expected["pixel_values"].double(), rtol=1e-5, atol=1e-5
    )


def test_grey_frames_are_scaled_as_the_image_processor_scales_them(checkpoint: Path) -> None:
    """Data sets scale frames before a model sees them: bilinear, as ViT's processor does."""
    from trainables.datasets.video.frame_files import scaled

    grey = np.random.default_rng(1).integers(0, 256, (40, 60), dtype=np.uint8)
    processor = ViTImageProcessorPil.from_pretrained(checkpoint)
    expected = processor(np.stack([grey] * 3, axis=-1), return_tensors="pt")["pixel_values"]
    ours = np.stack([scaled(Image.fromarray(grey), 16)] * 3, axis=-1)
    model = ViT(str(checkpoint), 2, 16)
    found = (as_frames([ours]) * model.scale - model.pixel_mean) / model.pixel_std
    torch.testing.assert_close(found, expected.float(), rtol=1e-5, atol=1e-5)


def test_a_frame_that_tokens_hold_exactly_comes_back_unchanged(checkpoint: Path) -> None:
    model, frames = ViT(str(checkpoint), 2, 16), as_frames(images())
    normalised = (frames * model.scale - model.pixel_mean) / model.pixel_std
    grid = normalised.reshape(3, 3, 4, 4, 4, 4).permute(0, 2, 4, 3, 5, 1)
    tokens = grid.reshape(3, 16, 48)
    with_class = torch.cat([torch.full((3, 1, 48), 9.0), tokens], dim=1)
    torch.testing.assert_close(model._frame(with_class), frames)


def test_dropout_of_the_checkpoint_is_off_in_training_too(tmp_path: Path) -> None:
    folder = tiny_vit(tmp_path, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5)
    model = ViT(str(folder), 2, 16)
    frames = as_frames(images())
    in_training = torch.stack(model.train()(frames))
    assert torch.equal(in_training, torch.stack(model.train()(frames)))
    assert torch.equal(in_training, torch.stack(model.eval()(frames)))
    assert model.train().training


def test_loading_leaves_global_random_numbers_and_messages_alone(
    checkpoint: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = torch.get_rng_state()
    ViT(str(checkpoint), 2, 16)
    assert torch.equal(torch.get_rng_state(), before)
    assert capfd.readouterr() == ("", "")


def test_weights_of_the_older_kind_are_part_of_the_fingerprint(copied: Path) -> None:
    weights, seen = load_file(copied / "model.safetensors"), []
    before = ViT(str(copied), 2, 16)(as_frames(images()))[-1]
    (copied / "model.safetensors").unlink()
    for factor in (1.0, 1.5):
        scaled = {name: factor * weight for name, weight in weights.items()}
        torch.save(scaled, copied / "pytorch_model.bin")
        last = ViT(str(copied), 2, 16)(as_frames(images()))[-1]
        assert torch.equal(last, before) == (factor == 1.0)  # they are what is loaded
        seen.append(checkpoint_fingerprint(str(copied)))
    assert seen[0] != seen[1]


def test_weights_of_the_older_kind_are_not_read_beside_the_newer(copied: Path) -> None:
    before = checkpoint_fingerprint(str(copied))
    torch.save({}, copied / "pytorch_model.bin")
    assert checkpoint_fingerprint(str(copied)) == before
    ViT(str(copied), 2, 16)


def test_an_image_processor_of_either_file_is_part_of_the_fingerprint(copied: Path) -> None:
    before, fields = checkpoint_fingerprint(str(copied)), IMAGENET | {"do_normalize": True}
    processor = json.loads((copied / "preprocessor_config.json").read_text()) | fields
    nested = json.dumps({"image_processor": processor})
    (copied / "processor_config.json").write_text(nested)
    mean = ViT(str(copied), 2, 16).pixel_mean.flatten()
    torch.testing.assert_close(mean, torch.tensor(IMAGENET["image_mean"]))  # it is what is loaded
    assert checkpoint_fingerprint(str(copied)) != before


# --- checkpoints that are refused -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["no-such/model", "nothing", "not a name!"])
def test_a_name_that_was_never_downloaded_says_how_to_fetch_it(name: str) -> None:
    with pytest.raises(UnknownName) as caught:
        ViT(name, 2, 16)
    message = str(caught.value)
    assert repr(name) in message
    assert "neither a folder" in message
    assert f"hf download {name}" in message
    assert "hub" in message  # where it was looked for
    assert "\n" not in message


@pytest.mark.parametrize(
    "name", ["./nowhere", "/nowhere/at/all", "~/nowhere", "~nobody-here/x", "a/b/c"]
)
def test_a_folder_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(UnknownName, match=r"there is no such folder \(.*(nowhere|x|c)"):
        ViT(name, 2, 16)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_size": 96}, r"hidden size 96, patches of 4 pixels, 3 channels"),
        ({"patch_size": 8}, r"hidden size 48, patches of 8 pixels"),
        ({"num_channels": 1}, r"1 channels"),
        ({"num_hidden_layers": 3}, r"model\.layers must be 3, the depth of .*, got 2\."),
        ({"image_size": 32}, r"data\.frame_size must be that of .*, 32, got 16\."),
    ],
)
def test_checkpoints_that_do_not_fit_are_refused(
    fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidValue, match=message):
        ViT(str(tiny_vit(tmp_path, **fields)), 2, 16)


def test_a_processor_that_disagrees_with_its_network_is_refused(tmp_path: Path) -> None:
    folder = tiny_vit(tmp_path, processor={"size": {"height": 32, "width": 32}})
    with pytest.raises(InvalidValue, match=r"takes images of 16 x 16 pixels, .* makes 32"):
        ViT(str(folder), 2, 32)


def test_a_processor_that_keeps_the_sides_ratio_has_no_size(tmp_path: Path) -> None:
    folder = tiny_vit(tmp_path, processor={"size": {"shortest_edge": 16}})
    with pytest.raises(InvalidValue, match=r"none: it makes .*shortest_edge.*got 16"):
        ViT(str(folder), 2, 16)


def test_another_kind_of_network_is_refused(tmp_path: Path) -> None:
    BertConfig(hidden_size=48, num_hidden_layers=2).save_pretrained(tmp_path)
    with pytest.raises(InvalidValue, match=r"is of type 'bert'; model vit takes one of vit, deit"):
        ViT(str(tmp_path), 2, 16)


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("config.json", "configuration"),
        ("preprocessor_config.json", "image processor"),
        ("model.safetensors", "weights"),
    ],
)
@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "garbage"])
def test_missing_and_damaged_files_are_named(
    copied: Path, file: str, what: str, damage: str
) -> None:
    content = (copied / file).read_bytes()
    if damage == "missing":
        (copied / file).unlink()
    else:
        left = {"empty": b"", "truncated": content[: len(content) // 2], "garbage": os.urandom(99)}
        (copied / file).write_bytes(left[damage])
    with pytest.raises(BadData, match=f"cannot read the {what} of checkpoint .*copy.*model"):
        ViT(str(copied), 2, 16)


def test_fields_of_the_wrong_type_are_named(copied: Path) -> None:
    fields = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(fields | {"hidden_size": "wide"}))
    with pytest.raises(BadData, match="cannot read the configuration"):
        ViT(str(copied), 2, 16)


def test_code_beside_the_weights_is_neither_run_nor_asked_about(copied: Path) -> None:
    fields = json.loads((copied / "config.json").read_text())
    fields |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config"}}
    (copied / "config.json").write_text(json.dumps(fields))
    (copied / "mine.py").write_text("raise SystemExit('ran')")
    with pytest.raises(BadData, match="cannot read the configuration"):
        ViT(str(copied), 2, 16)


def test_weights_that_lack_a_block_are_refused(copied: Path) -> None:
    weights = load_file(copied / "model.safetensors")
    left = {name: w for name, w in weights.items() if "layer.1." not in name}
    assert 0 < len(left) < len(weights)
    save_file(left, copied / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadData, match=r"lacks \d+ weights of its own network"):
        ViT(str(copied), 2, 16)
