"""Messages between laptop and head: whole, as JSON, told apart by version."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sweep.cluster import submission
from sweep.cluster.submission import (
    ANSWER,
    FILE,
    Answer,
    Question,
    Submission,
    find_root,
    is_same_root,
    refuse_other_version,
)
from tests.support.drivers import tiny
from trainables.code_version import code_version
from trainables.errors import Failure, Misuse

ROOT = Path(__file__).parents[3]


def sent(**fields: object) -> Submission:
    return Submission(name="tiny", version=code_version(), **fields)  # type: ignore[arg-type]


# --- the way there and back -----------------------------------------------------------------------


def test_a_submission_is_json_and_comes_back_equal(tmp_path: Path) -> None:
    given = sent(definition=tiny().to_json(), named_fields=("steps",), options=("--workers", "2"))
    given = replace(given, accept_code=True, others=(("tiny-1", ""), ("tiny-2", "s3://bucket")))
    given.write(tmp_path)
    assert Submission.read(tmp_path) == given
    assert [path.name for path in tmp_path.iterdir()] == [FILE]  # nothing else, and no code


def test_a_submission_is_for_its_owner_alone(tmp_path: Path) -> None:
    """It may hold the address of a webhook, which is a secret."""
    sent(notify="https://hooks.example.org/T0/secret").write(tmp_path)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    (tmp_path / FILE).chmod(0o644)  # as Ray unpacks it on the head
    Submission.read(tmp_path)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_a_submission_of_another_version_is_refused(tmp_path: Path) -> None:
    plain = {"name": "tiny", "version": "9", "colour": "blue"}
    (tmp_path / FILE).write_text(json.dumps(plain))
    with pytest.raises(Misuse, match=r"another version.*colour"):
        Submission.read(tmp_path)


@pytest.mark.parametrize("text", ['a\'b "c" $HOME `id` \\', "line\nline", "ü"])
def test_a_question_survives_a_shell(text: str) -> None:
    question = Question(("best", text), "/root of all", ((text, "job", ""),))
    ran = subprocess.run(
        f"printf %s {question.to_word()}", shell=True, check=True, capture_output=True, text=True
    )
    assert Question.parse(ran.stdout) == question
    assert len(shlex.split(question.to_word())) == 1


def test_an_answer_is_found_among_what_else_a_job_prints() -> None:
    answer = Answer(2, "a\nb\n", f"sweep: {ANSWER}no\n", "1", {"a.md": "x\n"})
    log = f"Running entrypoint\n{answer.to_line()}\nmore\n"
    assert Answer.from_log(log) == answer
    assert Answer.from_log("Running entrypoint\n") is None


def test_half_an_answer_is_none() -> None:
    line = Answer(0, "out").to_line()
    for end in range(len(line) + 1):
        assert Answer.from_log(line[:end]) is None
    assert Answer.from_log(line + "\n") is not None


# --- versions -------------------------------------------------------------------------------------


def version_of(folder: Path) -> str:
    code = "from trainables.code_version import code_version; print(code_version())"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, check=True, capture_output=True, text=True,
        env={"PATH": "/usr/bin:/bin"},
    ).stdout.strip()  # fmt: skip


def test_a_version_changes_with_what_trains_and_with_nothing_else(tmp_path: Path) -> None:
    for package in ("sweep", "search_spaces", "trainables"):
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    before = version_of(tmp_path)
    (tmp_path / "search_spaces" / "mine.py").write_text("SPACE = None\n")
    (tmp_path / "sweep" / "notes.txt").write_text("not code\n")
    assert version_of(tmp_path) == before
    for changed in ("trainables/training.py", "sweep/study/plan.py", "search_spaces/space.py"):
        with open(tmp_path / changed, "a") as file:
            file.write("# changed\n")
        after = version_of(tmp_path)
        assert after != before
        before = after


def test_another_version_is_refused_unless_it_is_wanted() -> None:
    refuse_other_version(code_version(), any_version=False)
    refuse_other_version("0.0+other", any_version=True)
    with pytest.raises(Failure, match=r"this laptop 0\.0\+other.*--any-version"):
        refuse_other_version("0.0+other", any_version=False)


# --- the storage root -----------------------------------------------------------------------------


def test_a_cluster_names_its_storage_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(submission.STORAGE, "s3://bucket/path")
    assert find_root(None) == "s3://bucket/path"
    assert find_root("/mnt/shared") == "/mnt/shared"
    with pytest.raises(Misuse, match="absolute folder"):
        find_root("sweeps")
    assert is_same_root(None, "s3://bucket/path/")
    assert is_same_root("", "s3://bucket/path")
    assert not is_same_root("", "s3://bucket")
    monkeypatch.delenv(submission.STORAGE)
    assert not is_same_root("", "s3://bucket/path")
    with pytest.raises(Misuse, match="SWEEP_STORAGE is not set"):
        find_root(None)
