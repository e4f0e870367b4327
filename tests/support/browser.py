"""Headless Chromium for tests: pages that are opened, asked, clicked and pictured.

Chromium is Debian's package. It is spoken to by its DevTools protocol over a web socket of
loopback; names of hosts resolve to nothing, and every request a page makes is noted. Tests that ask
for it skip with a reason where it is not installed.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

DESKTOP, PHONE = (1280, 900), (390, 844)
# A screen with a mouse: else charts show all their tools.
MOUSE = "primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4"
START_S, ANSWER_S = 60.0, 60.0


@dataclass
class Page:
    """One page that is open."""

    _socket: Any
    _loop: asyncio.AbstractEventLoop
    errors: list[str] = field(default_factory=list)  # of the console, and exceptions
    requests: list[str] = field(default_factory=list)  # addresses, in order
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def tell(self, method: str, **options: Any) -> Mapping[str, Any]:
        """A command of the DevTools protocol, and its answer."""
        return self._loop.run_until_complete(self._tell(method, options))

    async def _tell(self, method: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": options})
        while True:
            said = json.loads((await asyncio.wait_for(self._socket.receive(), ANSWER_S)).data)
            if said.get("id") == number:
                assert "error" not in said, f"{method}: {said['error']}"
                answer: Mapping[str, Any] = said["result"]
                return answer
            self._note(said.get("method"), said.get("params", {}))

    def _note(self, event: str | None, said: Mapping[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(said["exceptionDetails"])[:500])
        elif event == "Runtime.consoleAPICalled" and said["type"] in ("error", "assert"):
            self.errors.append(json.dumps(said["args"])[:500])
        elif event == "Log.entryAdded" and said["entry"]["level"] == "error":
            self.errors.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")
        elif event == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])

    def open(self, address: str) -> None:
        """Go to an address, and wait until the page says that it is loaded."""
        self.tell("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete'")

    def ask(self, script: str) -> Any:
        """The value of an expression in the page; of a promise what it comes to."""
        answer = self.tell(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, f"{script}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def wait_for(self, script: str, timeout_s: float = 60.0) -> float:
        """Wait until an expression holds; the seconds it took."""
        started = time.monotonic()
        while not self.ask(f"Boolean({script})"):
            passed = time.monotonic() - started
            assert passed < timeout_s, f"not within {timeout_s:.0f} s: {script}"
            time.sleep(0.05)
        return time.monotonic() - started

    def text(self) -> str:
        """All text that the page shows."""
        return str(self.ask("document.body.innerText"))

    def resize(self, size: tuple[int, int], *, dark: bool = False) -> None:
        """Show the page at a width and height, light or dark; of a phone's width, as on a phone."""
        width, height = size
        self.tell(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.tell("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path, *, whole: bool = False) -> Path:
        """A PNG of what is seen, or of the whole page; returns ``path``."""
        shown = self.tell("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shown["data"]))
        return path

    def outside(self, *allowed: str) -> list[str]:
        """Requests to anything but files, data, and addresses that begin with one of these."""
        known = ("data:", "blob:", "file:", "about:", *allowed)
        return [url for url in self.requests if not url.startswith(known)]


@contextmanager
def browser(size: tuple[int, int] = DESKTOP) -> Iterator[Page]:
    """A page in a Chromium of its own, which is ended afterwards; skips where there is none."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs Debian's package chromium")
    # A browser's children may write into its folder until they are gone.
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as home:
        started = subprocess.Popen(
            [
                program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--no-first-run", "--remote-debugging-port=0", f"--user-data-dir={home}",
                f"--blink-settings={MOUSE}",
                "--disable-background-networking", "--disable-component-update",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        loop = asyncio.new_event_loop()
        try:
            with _page(loop, _port(started, Path(home))) as page:
                page.resize(size)
                yield page
        finally:
            started.terminate()
            started.wait(30)
            loop.close()


def _port(started: subprocess.Popen[bytes], home: Path) -> int:
    until = time.monotonic() + START_S
    told = home / "DevToolsActivePort"
    while not (told.exists() and told.read_text().strip()):
        assert started.poll() is None, f"chromium ended with exit code {started.returncode}"
        assert time.monotonic() < until, "chromium does not start"
        time.sleep(0.05)
    return int(told.read_text().split()[0])


@contextmanager
def _page(loop: asyncio.AbstractEventLoop, port: int) -> Iterator[Page]:
    import aiohttp

    async def joined() -> tuple[Any, Any]:
        session = aiohttp.ClientSession()
        async with session.get(f"http://127.0.0.1:{port}/json/list") as reply:
            tabs = [tab for tab in await reply.json() if tab["type"] == "page"]
        address = tabs[0]["webSocketDebuggerUrl"]
        return session, await session.ws_connect(address, max_msg_size=0)

    async def left(session: Any, socket: Any) -> None:
        await socket.close()
        await session.close()

    session, socket = loop.run_until_complete(joined())
    try:
        page = Page(socket, loop)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.tell(f"{domain}.enable")
        yield page
    finally:
        loop.run_until_complete(left(session, socket))
