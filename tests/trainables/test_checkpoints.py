"""Checkpoints: read once per process, copied for each model, known by what their files hold."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CLIPConfig

from tests.support.data.text_checkpoints import tiny_encoder
from trainables import checkpoints
from trainables.checkpoints import Checkpoint
from trainables.errors import BadData, InvalidValue, UnknownName
from trainables.fetching import checkpoint_files
from trainables.fetching.checkpoint_files import checkpoint_fingerprint, downloaded, files_of

NEEDS = ("config.json", "model.safetensors")
NAME = "someone/tiny-bert"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_encoder(tmp_path / "tiny")


def weights_of(network: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


def doubled(folder: Path) -> None:
    """Other weights under the same name."""
    weights = load_file(folder / "model.safetensors")
    save_file(
        {name: 2 * w for name, w in weights.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )


def test_weights_are_read_once_and_every_copy_is_its_own(folder: Path) -> None:
    reads = checkpoints._base_network.cache_info().misses
    first, second = (
        Checkpoint(str(folder), NEEDS).network(),
        Checkpoint(str(folder), NEEDS).network(),
    )
    words = Checkpoint(str(folder), NEEDS).word_embeddings()
    assert checkpoints._base_network.cache_info().misses == reads + 1
    as_read = weights_of(second).clone()
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.zero_()
        words.zero_()
    assert torch.equal(weights_of(second), as_read)
    assert torch.equal(weights_of(Checkpoint(str(folder), NEEDS).network()), as_read)
    assert Checkpoint(str(folder), NEEDS).word_embeddings().any()


def test_weights_that_are_replaced_are_read_again(folder: Path) -> None:
    before = weights_of(Checkpoint(str(folder), NEEDS).network())
    print_before = checkpoint_fingerprint(str(folder))
    doubled(folder)
    assert torch.equal(weights_of(Checkpoint(str(folder), NEEDS).network()), 2 * before)
    assert checkpoint_fingerprint(str(folder)) != print_before


def test_old_weights_count_where_there_are_no_new_ones(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    with_new = checkpoint_fingerprint(str(folder))
    as_read = weights_of(Checkpoint(str(folder), NEEDS).network())
    torch.save(weights, folder / "pytorch_model.bin")
    assert checkpoint_fingerprint(str(folder)) == with_new  # it is not what is loaded
    (folder / "model.safetensors").unlink()
    with_old = checkpoint_fingerprint(str(folder))
    assert [f.name for f in files_of(str(folder))] == ["config.json", "pytorch_model.bin"]
    assert torch.equal(weights_of(Checkpoint(str(folder), NEEDS).network()), as_read)
    torch.save({name: 2 * w for name, w in weights.items()}, folder / "pytorch_model.bin")
    assert len({with_new, with_old, checkpoint_fingerprint(str(folder))}) == 3
    assert torch.equal(weights_of(Checkpoint(str(folder), NEEDS).network()), 2 * as_read)


def test_depth_is_the_configurations_whatever_it_calls_it(tmp_path: Path) -> None:
    for kind in ("distilbert", "roberta"):  # n_layers, num_hidden_layers
        assert Checkpoint(str(tiny_encoder(tmp_path / kind, kind)), NEEDS).depth() == 3
    CLIPConfig().save_pretrained(tmp_path / "two")
    with pytest.raises(InvalidValue, match="'clip', which does not state its number of layers"):
        Checkpoint(str(tmp_path / "two"), NEEDS).depth()


@pytest.fixture
def cache(folder: Path, tmp_path: Path) -> Path:
    """A download as the hub lays it out: refs/main names the snapshot."""
    model = tmp_path / "hub" / "models--someone--tiny-bert"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("0" * 40)
    shutil.copytree(folder, model / "snapshots" / ("0" * 40))
    return tmp_path / "hub"


def test_downloads_are_listed_where_a_name_is_unknown(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_files, "HF_HUB_CACHE", str(cache))
    assert downloaded() == [NAME]
    with pytest.raises(UnknownName, match=rf"Downloaded: {NAME}\. Where there is a network"):
        Checkpoint("someone/else", NEEDS).config()


def test_a_network_that_is_made_here_is_not_to_be_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownName, match=r"Make it: `python -m \S+small_decoder small_decoder"):
        Checkpoint("small_decoder", NEEDS).config()


@pytest.mark.slow
def test_a_download_is_read_by_its_name(cache: Path, folder: Path) -> None:
    """In a process of its own: where the cache lies is settled at import."""
    code = f"""
import torch
from trainables.checkpoints import Checkpoint
from trainables.fetching.checkpoint_files import checkpoint_fingerprint
from trainables.models.encoder import encoder
options = dict(layers=3, classes=2, pooling="cls", seed=0, max_length=8)
by_name, by_folder = (encoder(n, **options).state_dict() for n in ({NAME!r}, {str(folder)!r}))
assert all(torch.equal(w, by_folder[name]) for name, w in by_name.items())
assert checkpoint_fingerprint({NAME!r}) == checkpoint_fingerprint({str(folder)!r})
print("same")
"""
    environment = os.environ | {"HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "0"}
    ran = subprocess.run(
        (sys.executable, "-c", code), env=environment, capture_output=True, text=True, check=False
    )
    assert ran.stdout.strip() == "same", ran.stderr


@pytest.mark.parametrize(
    ("prefix", "wrapper"),
    [("module.", "DistributedDataParallel"), ("_orig_mod.", "torch.compile")],
)
def test_weights_that_a_wrapper_saved_are_told_with_their_cause(
    folder: Path, prefix: str, wrapper: str
) -> None:
    weights = load_file(folder / "model.safetensors")
    wrapped = {prefix + name: w for name, w in weights.items()}
    save_file(wrapped, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadData, match=rf"names begin with '{prefix}', of {wrapper}: save the net"):
        Checkpoint(str(folder), NEEDS).network()


def test_an_adapter_without_its_network_is_told_as_one(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    with pytest.raises(BadData, match=r"an adapter of PEFT and no network: merge it"):
        Checkpoint(str(folder), NEEDS).config()
