"""A cloud on loopback: moto's server, the requests it was sent, and faults on order."""

from __future__ import annotations

import io
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import botocore.config
import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from trainables.plain import Json

REGION = "us-west-2"
BUCKET = "lab"
UNSET = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL_S3")


@dataclass(frozen=True)
class Request:
    """One request, as the cloud saw it."""

    method: str
    path: str
    query: str
    form: dict[str, str]  # of EC2 and other services that are spoken to in forms

    @property
    def action(self) -> str:
        """What is asked of EC2, IAM or CloudFormation."""
        return self.form.get("Action", "")


class Cloud:
    """S3, EC2, IAM and CloudFormation for one test at a time."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.before: Callable[[Request], int | None] = lambda request: None  # a status refuses it
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server = make_server(
            "127.0.0.1", 0, self._answer, threaded=True, request_handler=_Silent
        )
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def environment(self) -> dict[str, str]:
        """What clients of this cloud are started with."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }

    def client(self, service: str) -> Json:
        """boto3's client of this cloud."""
        import boto3

        return boto3.client(service, region_name=REGION)

    def reset(self) -> None:
        """An empty account again."""
        self.before = lambda request: None
        ask = urllib.request.Request(f"{self.url}/moto-api/reset", method="POST")
        with urllib.request.urlopen(ask, timeout=30):
            pass
        self.requests.clear()

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ: dict[str, Json], start: Json) -> Iterable[bytes]:
        form: dict[str, str] = {}
        if "x-www-form-urlencoded" in environ.get("CONTENT_TYPE", ""):
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            environ["wsgi.input"] = io.BytesIO(body)
            form = dict(urllib.parse.parse_qsl(body.decode()))
        request = Request(
            environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("QUERY_STRING", ""), form
        )
        if not request.path.startswith("/moto-api"):
            self.requests.append(request)
            status = self.before(request)
            if status is not None:
                start(f"{status} refused", [("Content-Length", "0")])
                return [b""]
        answer: Iterable[bytes] = self._moto(environ, start)
        return answer


class _Silent(WSGIRequestHandler):
    def log(self, *_: object) -> None:
        pass


def enter(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process talks to an empty ``cloud`` and to no other."""
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    for name, value in cloud.environment().items():
        monkeypatch.setenv(name, value)
    # A loaded machine may take longer than a minute over a list of all instance types.
    monkeypatch.setitem(botocore.config.Config.OPTION_DEFAULTS, "read_timeout", 600)
    cloud.reset()
