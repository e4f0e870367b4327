"""S3 on loopback for benchmarks: moto's server, which counts requests, with delay.

Prints its port. Under /requests-served it says how often it was asked; a number below /delay-ms/
is how long every later request takes beside its work. moto looks at every key of a bucket at every
listing; S3, and this, only at those that begin with the prefix, or what a listing costs would grow
with the sweep.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from threading import Lock
from time import sleep
from types import SimpleNamespace

from moto.s3.models import S3Backend
from moto.s3.utils import _VersionedKeyStore
from moto.server import DomainDispatcherApplication, create_backend_app  # type: ignore[attr-defined]
from werkzeug.serving import WSGIRequestHandler, make_server

from trainables.plain import Json

LAST = chr(0x10FFFF)  # sorts after whatever follows a prefix
_names: list[str] = []  # of all keys that were ever put, sorted
_set_list = _VersionedKeyStore.setlist
_list_objects = S3Backend.list_objects
_application = DomainDispatcherApplication(create_backend_app)
_one_at_a_time = Lock()  # S3 gives an object whole; moto's reads share one buffer, and tear


class Quiet(WSGIRequestHandler):
    """Keeps connections open, and its mouth shut."""

    protocol_version = "HTTP/1.1"

    def log_request(self, *_: object) -> None:
        """Nothing."""


def set_and_note(keys: Json, name: str, values: Json) -> None:
    """Put a key, and remember its name."""
    if name not in keys:
        insort(_names, name)
    _set_list(keys, name, values)


def list_few(backend: Json, bucket: Json, prefix: str | None, *more: Json, **options: Json) -> Json:
    """What moto's listing would answer, shown only the keys that it is asked for."""
    if prefix:
        near = _names[bisect_left(_names, prefix) : bisect_left(_names, prefix + LAST)]
        few = {name: bucket.keys[name] for name in near if name in bucket.keys}
        bucket = SimpleNamespace(keys=few)
    return _list_objects(backend, bucket, prefix, *more, **options)


def counting() -> Callable[[dict[str, Json], Callable[..., Json]], Iterable[bytes]]:
    """moto, and beside it what the benchmarks ask for."""
    served, delay_s = 0, 0.0

    def answer(environ: dict[str, Json], start: Callable[..., Json]) -> Iterable[bytes]:
        nonlocal served, delay_s
        path = environ["PATH_INFO"]
        if path.startswith("/delay-ms/"):
            delay_s = float(path.removeprefix("/delay-ms/")) / 1e3
        if path == "/requests-served" or path.startswith("/delay-ms/"):
            text = str(served).encode()
            start("200 OK", [("Content-Length", str(len(text)))])
            return [text]
        sleep(delay_s)
        with _one_at_a_time:
            served += 1
            return list(_application(environ, start))

    return answer


if __name__ == "__main__":
    _VersionedKeyStore.setlist = set_and_note  # type: ignore[assignment, method-assign]
    S3Backend.list_objects = list_few  # type: ignore[assignment, method-assign]
    server = make_server("127.0.0.1", 0, counting(), threaded=True, request_handler=Quiet)
    print(server.server_port, flush=True)
    server.serve_forever()
