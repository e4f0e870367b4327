"""A judge on loopback that speaks OpenAI's protocol, and alpaca_eval's configuration of it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_PARTS = "<|im_start|>user\nQ[{instruction}]A[{output_1}]B[{output_2}]\n<|im_end|>\n"
_CONFIG = """
on_loopback:
  prompt_template: "{folder}/template.txt"
  fn_completions: "openai_completions"
  completions_kwargs:
    model_name: "gpt-4-on-loopback"
    max_tokens: 5
    temperature: 0
    client_config_path: "{folder}/clients.yaml"
  completion_parser_kwargs:
    outputs_to_match:
      1: 'Output \\(a\\)'
      2: 'Output \\(b\\)'
  batch_size: 1
"""


class LoopbackJudge:
    """What was asked of it, and where its configuration lies."""

    def __init__(self, config: str) -> None:
        self.config = config
        self.asked: list[tuple[str, str]] = []  # both answers, as they were shown
        self.refuses_after: int | None = None  # so many requests
        self.mumbles = False  # says what is no preference


@contextmanager
def judge_server(
    folder: Path, prefers_first: Callable[[str, str], bool]
) -> Iterator[LoopbackJudge]:
    """Serve a judge who prefers the first of two answers shown where the function says so."""
    judge = LoopbackJudge(str(folder / "judge.yaml"))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            shown = re.fullmatch(
                r"Q\[.*?\]A\[(.*)\]B\[(.*)\]", body["messages"][-1]["content"].strip(), re.DOTALL
            )
            assert shown is not None
            first, second = shown.groups()
            refuses = judge.refuses_after is not None and len(judge.asked) >= judge.refuses_after
            if not refuses:
                judge.asked.append((first, second))
            said = f"Output ({'a' if prefers_first(first, second) else 'b'})"
            if judge.mumbles:
                said = "Well."
            message = {"role": "assistant", "content": said}
            answer = {
                "id": "1", "object": "chat.completion", "created": 0, "model": body["model"],
                "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }  # fmt: skip
            content = json.dumps(answer).encode()
            self.send_response(400 if refuses else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    (folder / "template.txt").write_text(_PARTS)
    (folder / "judge.yaml").write_text(_CONFIG.format(folder=folder))
    (folder / "clients.yaml").write_text(
        f"default:\n  - api_key: none\n    base_url: http://127.0.0.1:{server.server_port}/v1\n"
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield judge
    finally:
        server.shutdown()
        server.server_close()
