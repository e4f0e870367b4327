"""A slurm.yaml: read, checked, and told from a cluster.yaml."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sweep.slurm.slurm_yaml import LEAD_S, Worker, is_slurm_yaml, limit_s, read
from tests.support.drivers import ROOT
from trainables.errors import Misuse

STORAGE = "storage: /shared/sweeps\n"


def written(tmp_path: Path, text: str, name: str = "slurm.yaml") -> Path:
    file = tmp_path / name
    file.write_text(text)
    return file


def test_the_file_that_comes_along_is_read_once_it_is_filled_in(tmp_path: Path) -> None:
    text = (ROOT / "slurm.yaml").read_text()
    with pytest.raises(Misuse, match=r"has FILL-IN in line \d+, \d+, .*or delete the line"):
        read(written(tmp_path, text))
    given = read(written(tmp_path, text.replace("FILL-IN", "mine")))
    assert given.head.options() == [
        "--partition=mine-cpu", "--time=1-00:00:00", "--cpus-per-task=1", "--mem=4G",
    ]  # fmt: skip
    assert given.worker.options() == [
        "--partition=mine-gpu", "--time=2:30:00", "--cpus-per-task=28", "--mem=224G",
        "--gres=gpu:1", "--nodes=1",
    ]  # fmt: skip
    assert given.worker.machine == {"CPU": 28.0, "GPU": 1.0}


def test_each_line_of_it_that_is_commented_out_is_a_key(tmp_path: Path) -> None:
    text = (ROOT / "slurm.yaml").read_text().replace("FILL-IN", "mine")
    keys = re.sub(r"^( *)# (\w+: [\w/-]+)(?= #|$)", r"\1\2", text, flags=re.MULTILINE)
    given = read(written(tmp_path, keys))
    assert (given.worker.gpu_type, given.worker.constraint) == ("a100", "a100")
    assert (given.cache, given.head.account) == ("/mine-shared/cache", "mine-account")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("storge: /a\n", r"unknown key 'storge'.*Did you mean 'storage'\?"),
        ("data: /a\n", r"lacks the key storage: an absolute folder"),
        ("storage: sweeps\n", r"storage must be an absolute folder.*got 'sweeps'"),
        (f"{STORAGE}worker: {{gpu: 1}}\n", r"unknown field of Worker 'gpu'.*Did you mean 'gpus'"),
        (f"{STORAGE}head: {{gpus: 1}}\n", r"unknown field of Head 'gpus'"),
        (f"{STORAGE}worker: {{time: 2h}}\n", r"worker.time must be a time limit.*got '2h'"),
        (f"{STORAGE}worker: {{time: 0:30}}\n", r"worker.time must be .* at least two minutes"),
        (
            f"{STORAGE}worker: {{memory: 3 GB}}\n",
            r"worker.memory must be a number with K, M, G or T",
        ),
        (f"{STORAGE}worker: {{cpus: two}}\n", r"worker.cpus must be a whole number, got 'two'"),
        (f"{STORAGE}worker: {{most: 0}}\n", r"worker.most must be at least 1, got 0"),
        (f"{STORAGE}worker: {{memory: 224}}\n", r"worker.memory must be .*from 1000 up"),
        (f"{STORAGE}worker: {{gpu_type: a100}}\n", r"worker.gpu_type must be null without gpus"),
        (f"{STORAGE}head: {{partiton: a}}\n", r"unknown field of Head 'partiton'.*'partition'"),
        (f"{STORAGE}worker: {{partition: FILL-IN-gpu}}\n", r"has FILL-IN in line 2: write what"),
        (f"{STORAGE}worker: {{sbatch: [-M, x]}}\n", r"worker.sbatch .*gives it itself"),
        (f"{STORAGE}worker: {{partition: a b}}\n", r"worker.partition must be one word"),
        (f"{STORAGE}worker: {{sbatch: [--mem=3]}}\n", r"worker.sbatch .*use the key memory"),
        (f"{STORAGE}head: {{sbatch: [--requeue]}}\n", r"head.sbatch .*gives it itself"),
        (f"{STORAGE}head: {{sbatch: [mail-type=END]}}\n", r"head.sbatch must be options like"),
        (f"{STORAGE}setup: module load cuda\n", r'setup must be a list like \["module load cuda"'),
        (f"{STORAGE}poll_s: 0.1\n", r"poll_s must be at least 1.0, got 0.1"),
        (f"{STORAGE}python: venv/bin/python\n", r"python must be an absolute path"),
        (f"{STORAGE}data: data\n", r"data must be an absolute folder, or an address"),
        (f"{STORAGE}storage: /b\n", r"line 2: 'storage' is given twice"),
        (f"{STORAGE}worker: 3\n", r"worker must be a Worker, got 3"),
        ("- a\n", r"must be a mapping of keys like storage"),
        ("storage: [\n", r"slurm.yaml is no YAML: line 2"),
        ("1: 2\n", r"keys must be words, got 1"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(Misuse, match=message) as error:
        read(written(tmp_path, text))
    assert str(tmp_path / "slurm.yaml") in str(error.value)
    assert "\n" not in str(error.value)


def test_times_are_what_sbatch_takes_them_for(tmp_path: Path) -> None:
    """YAML 1.1 takes 2:30:00 for 9000, and sbatch 9000 for minutes: six days."""
    given = read(written(tmp_path, f"{STORAGE}head: {{time: 2:30:00}}\nworker: {{time: 150}}\n"))
    assert (given.head.options()[0], given.worker.options()[0]) == ("--time=2:30:00", "--time=150")
    assert limit_s(str(given.head.time)) == limit_s(str(given.worker.time)) == 9000.0


@pytest.mark.parametrize(
    ("time", "lead_s"),
    [(None, LEAD_S), ("UNLIMITED", LEAD_S), ("2:30:00", LEAD_S), (4, 60.0), (2, 30.0)],
)
def test_jobs_are_told_in_time_to_leave(time: str | int | None, lead_s: float) -> None:
    assert Worker(time=time).lead_s == lead_s


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("slurm.yaml", "", True),
        ("my-slurm.yaml", "storge: /a\n", True),
        ("site.yaml", STORAGE, True),
        ("site.yml", "worker: {}\n", True),
        ("site.yaml", "a: 1\n", False),
        ("site.yaml", "worker: [\n", True),  # with a mistake
        ("slurm.yaml", "provider: {type: aws}\ncluster_name: a\n", False),
        ("slurm.txt", STORAGE, False),
    ],
)
def test_the_file_is_told_from_that_of_ray(
    tmp_path: Path, name: str, text: str, expected: bool
) -> None:
    assert is_slurm_yaml(written(tmp_path, text, name)) is expected


def test_files_of_ray_and_urls_are_none() -> None:
    assert not is_slurm_yaml(ROOT / "cluster.yaml")
    assert not is_slurm_yaml(ROOT / "docs/cluster/on-premises.yaml")
    assert not is_slurm_yaml("http://127.0.0.1:8265")
