"""Course of the service on one GPU: what it lays beside, kills, keeps and ends; and all of it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest

from benchmarks.gpu import service
from sweep.study.requirements import require_torch
from trainables.errors import Failure

ROOT = Path(__file__).parents[2]
SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]
# In the place of a driver: one arm is final, another is trained for ever.
DRIVER = """
import sys, time
from pathlib import Path
arms = Path(sys.argv[1]) / "arms"
(arms / "one").mkdir(parents=True)
(arms / "one/record.json").write_text('{"status": "finished", "environment": {}}')
(arms / "two").mkdir()
(arms / "two/checkpoint-5").touch()
time.sleep(60)
"""


def record(storage: Path, arm: str, status: str = "finished", reason: str = "") -> list[str]:
    """A command that writes the final record of an arm."""
    text = json.dumps({"status": status, "reason": reason, "environment": {}}) + "\nsha256:0"
    code = f"from pathlib import Path; Path({str(storage / 'arms' / arm / 'record.json')!r})"
    return [sys.executable, "-c", f"{code}.write_text({text!r})"]


def test_any_torch_will_do_where_the_course_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def another(name: str) -> str:
        return "2.99.0+cu999" if name == "torch" else version(name)

    monkeypatch.setattr("importlib.metadata.version", another)
    with pytest.raises(Failure, match=r"torch must be ==2\.\d+\.0 here, got 2\.99\.0"):
        require_torch()
    monkeypatch.setattr(service, "version", another)
    service._write_metadata(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    require_torch()


def test_wheels_are_laid_beside_without_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ray-2.60.0-py3.whl", "torch-2.13.0-py3.whl", "nvidia_cudnn-9-py3.whl"):
        (tmp_path / name).touch()
    ran: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: ran.append(command))
    assert service.lay(tmp_path / "packages", tmp_path) == {"lines": ["1 of 3 wheels"]}
    assert ran[0][-2:] == [str(tmp_path / "packages"), str(tmp_path / "ray-2.60.0-py3.whl")]
    assert {"--no-index", "--no-deps"} <= set(ran[0])


def test_a_kill_and_what_must_be_as_it_was_after_it(tmp_path: Path) -> None:
    storage = tmp_path / "killed"
    service.kill(storage, [sys.executable, "-c", DRIVER, str(storage)])
    with pytest.raises(SystemExit, match="arms without a final record: two"):
        service.train(storage, ["true"])
    found = service.train(storage, record(storage, "two", "stopped"))
    assert found["lines"] == ["1 finished, 1 stopped, 1 of them before the kill"]
    with pytest.raises(SystemExit, match="final records changed: one"):
        service.train(storage, record(storage, "one"))


def test_an_arm_that_fails_is_a_failure_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "whole/arms/one").mkdir(parents=True)
    with pytest.raises(SystemExit, match="1 of 1 arms failed: no kernel image"):
        service.train(
            tmp_path / "whole", record(tmp_path / "whole", "one", "failed", "no kernel image")
        )


def test_a_driver_that_ends_before_its_kill_says_why(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="before it was killed:\nno space called so"):
        service.kill(tmp_path / "killed", [sys.executable, "-c", "exit('no space called so')"])


def test_what_was_started_here_is_ended_and_nothing_else() -> None:
    ours = subprocess.Popen(
        SLEEPS, env={**os.environ, service.MARK: "a mark"}, start_new_session=True
    )
    other = subprocess.Popen(SLEEPS, env={**os.environ, service.MARK: "another"})
    try:
        until = time.monotonic() + 10
        while True:  # a process that was just forked still has its parent's environment
            with contextlib.suppress(psutil.Error):
                if psutil.Process(ours.pid).environ().get(service.MARK):
                    break
            assert time.monotonic() < until
            time.sleep(0.01)
        service.end_all("a mark")
        assert ours.wait(5) != 0
        assert other.poll() is None
    finally:
        for process in (ours, other):
            process.kill()
            process.wait()


def test_the_environment_is_the_courses_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "somebody:6379")
    found = service.environment_of("cpu", tmp_path, "a mark")
    assert "RAY_ADDRESS" not in found
    assert found["HOME"].startswith(str(tmp_path))
    assert found["PYTHONPATH"].split(os.pathsep)[:2] == [str(tmp_path / "packages"), str(ROOT)]
    assert oct(Path(found["RAY_AUTH_TOKEN_PATH"]).stat().st_mode)[-3:] == "600"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_whole_course_runs_on_a_cpu(tmp_path: Path) -> None:
    own = {"PYTHON": sys.executable, "SWEEP_GPU_DEVICE": "cpu", "OUT": str(tmp_path)}
    ran = subprocess.run(
        [ROOT / ".ci/gpu-service"], env={**os.environ, **own}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    parts = json.loads((tmp_path / "summary.json").read_text())["parts"]
    assert [part["part"] for part in parts] == [n for n in service.LIMITS if n != "wheels"]
    assert len(list(tmp_path.iterdir())) <= 8
