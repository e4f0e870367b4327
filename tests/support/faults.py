"""Faults on order: a sitecustomize that kills or hangs a process inside a write, or fills the disk.

It lies in a folder that goes on PYTHONPATH, so that drivers and Ray workers load it. All processes
share the folder: orders are files, and each is executed once, by whoever comes first.

    kill-<n>-<kind>-<when>-<skip>   at write number skip of that kind, die: before or after the
                                    object appears under its name, or with half of it written;
                                    a record that is final is of the kind final, too
    hang-<n>-<kind>-<when>-<skip>   the same, and do not go on for ever
    killed-<n>-<pid>                the proof, written just before dying or hanging
    meet-<count>-<kind>             before the first such write of a process, wait for the others
    met-<pid>                       who came: its node, and which GPUs it sees
    full                            while it exists, nothing can be written
    rest                            seconds that a process rests after each report
    finals                          the arms that came to their ends, each as often as it did
    worker-<pid>                    a process that trains
"""

from __future__ import annotations

import os
from pathlib import Path

SOURCE = """
import errno, os, re, signal, sys, time
from pathlib import Path

FOLDER = Path(os.environ["FAULTS"])
KINDS = {
    "checkpoint": r"checkpoint-\\d+\\.pt", "record": r"(?:record|progress)\\.json",
    "weights": r"weights\\.pt", "attempts": r"attempts\\.json", "proposal": r"\\d{6}\\.json",
    "outcome": r"judged\\.json",
}
real = {name: getattr(os, name) for name in ("fsync", "replace", "link")}

def kind_of(path):
    name = os.path.basename(str(path))
    whole = re.fullmatch(r"\\.(.+)\\.[0-9a-f]{32}\\.tmp", name)
    name = whole.group(1) if whole else name
    return next((kind for kind, pattern in KINDS.items() if re.fullmatch(pattern, name)), None)

def die_if_ordered(kind, path, when, fd=None):
    for order in sorted(FOLDER.glob(f"*-*-{kind}-{when}-*")):
        skip = int(order.name.rpartition("-")[2])
        if skip:
            order.rename(order.with_name(f"{order.name.rpartition('-')[0]}-{skip - 1}"))
            continue
        try:
            order.unlink()
        except FileNotFoundError:
            continue  # somebody else died of it
        if fd is not None:
            os.ftruncate(fd, os.fstat(fd).st_size // 2)
        number = order.name.split("-")[1]
        (FOLDER / f"killed-{number}-{os.getpid()}").write_text(f"{kind} {when} {path}")
        while order.name.startswith("hang"):
            signal.pause()
        os.kill(os.getpid(), signal.SIGKILL)

def meet(kind):
    mine = FOLDER / f"met-{os.getpid()}"
    for order in FOLDER.glob(f"meet-*-{kind}"):
        if not mine.exists():
            gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
            mine.write_text(f"{os.getppid()} {gpus}")  # the raylet started it: one per node
            while len(list(FOLDER.glob("met-*"))) < int(order.name.split("-")[1]):
                time.sleep(0.05)

def fsync(fd):
    path = os.readlink(f"/proc/self/fd/{fd}")
    if kind_of(path) is not None:
        if (FOLDER / "full").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        if kind_of(path) in ("attempts", "checkpoint"):
            (FOLDER / f"worker-{os.getpid()}").touch()
        meet(kind_of(path))
        die_if_ordered(kind_of(path), path, "half", fd)
    real["fsync"](fd)

def moved(name):
    def move(source, target, **options):
        kinds = [kind_of(target)]
        if kinds == ["record"] and b'"status": "running"' not in Path(source).read_bytes():
            kinds.append("final")
            with open(FOLDER / "finals", "a") as finals:
                finals.write(Path(target).parent.name + "\\n")
        for kind in kinds:
            die_if_ordered(kind, target, "before")
        real[name](source, target, **options)
        for kind in kinds:
            die_if_ordered(kind, target, "after")
        if "record" in kinds and (FOLDER / "rest").exists():
            time.sleep(float((FOLDER / "rest").read_text()))
    return move

os.fsync, os.replace, os.link = fsync, moved("replace"), moved("link")
"""


class Faults:
    """The orders of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(SOURCE)
        self._orders = 0

    @classmethod
    def of(cls, folder: Path) -> Faults:
        """Those of a folder that is there."""
        there = cls.__new__(cls)
        there.folder, there._orders = folder, 0
        return there

    @classmethod
    def of_this_process(cls) -> Faults:
        """Those whose orders this process executes."""
        return cls.of(Path(os.environ["FAULTS"]))

    def environment(self) -> dict[str, str]:
        """What the processes of the test are started with."""
        path = os.pathsep.join(filter(None, (str(self.folder), os.environ.get("PYTHONPATH"))))
        return {**os.environ, "PYTHONPATH": path, "FAULTS": str(self.folder)}

    def kill(self, kind: str, when: str, skip: int = 0) -> None:
        """Order a death: inside write number ``skip`` of this kind from now on."""
        self._orders += 1
        (self.folder / f"kill-{self._orders:02d}-{kind}-{when}-{skip}").touch()

    def hang(self, kind: str, when: str, skip: int = 0) -> None:
        """Order a standstill: inside write number ``skip`` of this kind from now on."""
        self._orders += 1
        (self.folder / f"hang-{self._orders:02d}-{kind}-{when}-{skip}").touch()

    def meet(self, count: int, kind: str) -> None:
        """Let processes wait for each other before their first write of this kind."""
        (self.folder / f"meet-{count}-{kind}").touch()

    def met(self) -> list[tuple[str, str]]:
        """Those who came: the node that each is on, and the GPUs that it sees."""
        told = (path.read_text().partition(" ") for path in self.folder.glob("met-*"))
        return [(node, gpus) for node, _, gpus in told]

    def pending(self) -> list[str]:
        """Orders that nobody has died of yet."""
        orders = [*self.folder.glob("kill-*"), *self.folder.glob("hang-*")]
        return sorted(path.name for path in orders)

    def deaths(self) -> list[str]:
        """What was being written when processes died on order: kind, moment and path."""
        return [path.read_text() for path in sorted(self.folder.glob("killed-*"))]

    def obeyed(self) -> set[int]:
        """Process ids that died or hang on order."""
        return {int(path.name.rpartition("-")[2]) for path in self.folder.glob("killed-*")}

    def full(self, yes: bool) -> None:
        """Fill or free the disk."""
        path = self.folder / "full"
        path.touch() if yes else path.unlink()

    def rest(self, seconds: float) -> None:
        """Let arms rest after each report: a sweep lasts as long as a test needs, at no cost."""
        new = self.folder / "rest.new"
        new.write_text(str(seconds))
        new.replace(self.folder / "rest")

    def finals(self) -> list[str]:
        """Signatures of the arms that came to their ends, each as often as it did."""
        file = self.folder / "finals"
        return file.read_text().split() if file.exists() else []

    def workers(self) -> list[int]:
        """Process ids that have trained and are alive."""
        found = [int(path.name.removeprefix("worker-")) for path in self.folder.glob("worker-*")]
        return sorted(pid for pid in found if _is_alive(pid))


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
