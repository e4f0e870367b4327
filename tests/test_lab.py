"""The lab itself: hosts boot, reach each other, are powered off and cut, and leave nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.hosts import STORAGE, Lab, lab, why_not
from tests.support.drivers import ROOT, wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

SSH = "ssh -o BatchMode=yes -o StrictHostKeyChecking=no -o ConnectTimeout=2 -o LogLevel=ERROR"


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Lab]:
    with lab(tmp_path) as made:
        yield made


def key_of_laptop(made: Lab) -> str:
    """Boot the laptop and make its key; returns the public part."""
    laptop = made.boot("laptop")
    laptop.run("ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519")
    return laptop.run("cat ~/.ssh/id_ed25519.pub").stdout


def test_hosts_have_their_own_names_processes_files_and_the_shared_disk(empty: Lab) -> None:
    key = key_of_laptop(empty)
    laptop = empty.hosts["laptop"]
    one = empty.boot("one", keys=key, has_storage=True)
    two = empty.boot("two", keys=key, has_storage=True)
    assert laptop.run(f"{SSH} {one.address} hostname").stdout == "one\n"
    assert laptop.run(f"{SSH} {two.address} 'echo $HOME; id -un'").stdout == "/home/user\nroot\n"
    one.run(f"echo shared > {STORAGE}/file; echo own > /etc/own; echo own > /tmp/own")
    assert two.run(f"cat {STORAGE}/file; ls /etc/own /tmp/own", check=False).stdout == "shared\n"
    assert (empty.storage / "file").read_text() == "shared\n"
    assert not Path("/etc/own").exists()
    assert laptop.run(f"ls {STORAGE}", check=False).returncode != 0
    assert one.run("cat /proc/1/cmdline").stdout.startswith("bash")
    assert set(one.processes()).isdisjoint(two.processes())
    # Who has no key is not let in, and nobody gets out.
    refused = two.run(f"{SSH} {one.address} true", check=False)
    assert "Permission denied" in refused.stderr
    away = "import socket; socket.create_connection(('192.0.2.1', 80), 1)"
    assert one.run(f'{sys.executable} -c "{away}"', check=False).returncode != 0


def test_a_host_that_is_powered_off_is_gone_and_keeps_its_disk(empty: Lab) -> None:
    key = key_of_laptop(empty)
    laptop = empty.hosts["laptop"]
    one = empty.boot("one", keys=key)
    one.run("echo kept > ~/kept; echo lost > /tmp/lost")
    with laptop.start(f"{SSH} {one.address} sleep 600") as session:
        wait_until(lambda: bool(one.processes("sleep 600")))
        before = one.processes()
        one.power_off()
        assert session.wait(timeout=20) == 255  # its kernel said good-bye
    assert not [pid for pid in before if Path(f"/proc/{pid}").exists()]
    assert laptop.run(f"{SSH} {one.address} true", check=False).returncode == 255
    one.power_on()
    there = laptop.run(f"{SSH} {one.address} 'cat ~/kept; ls /tmp/lost'", check=False)
    assert there.stdout == "kept\n"


def test_a_host_whose_cable_is_cut_goes_on_in_silence(empty: Lab) -> None:
    key = key_of_laptop(empty)
    laptop = empty.hosts["laptop"]
    one = empty.boot("one", keys=key)
    talking = "until [ -e ~/go ]; do sleep 0.1; done; echo through; exec sleep 600"
    with laptop.start(f"{SSH} {one.address} '{talking}'") as session:
        wait_until(lambda: bool(one.processes("sleep 600")))
        one.cut()
        assert laptop.run(f"{SSH} {one.address} true", check=False).returncode == 255
        assert session.poll() is None
        assert one.run("touch ~/go; sleep 1; echo works").stdout == "works\n"
        one.mend()
        assert session.stdout is not None
        assert session.stdout.readline() == "through\n"  # TCP has waited
        session.kill()


def test_a_lab_leaves_nothing_behind_even_when_its_owner_is_killed(tmp_path: Path) -> None:
    before = traces()
    code = (
        "import sys; from pathlib import Path; from tests.lab.hosts import Lab\n"
        "made = Lab(Path(sys.argv[1])); made.boot('one', has_storage=True)\n"
        "print(*made.hosts['one'].processes(), flush=True); input()"
    )
    with subprocess.Popen(
        (sys.executable, "-c", code, str(tmp_path)),
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as owner:  # fmt: skip
        assert owner.stdout is not None
        pids = [int(word) for word in owner.stdout.readline().split()]
        assert pids
        owner.kill()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), timeout_s=20)
    wait_until(lambda: traces() == before, timeout_s=20)


def traces() -> tuple[str, list[str], bool]:
    """What a lab could leave on the machine: mounts, network devices, named namespaces."""
    mounts = Path("/proc/self/mounts").read_text()
    return mounts, sorted(os.listdir("/sys/class/net")), Path("/run/netns").exists()
