"""Entry point on a cluster's head: one verb, run there for a laptop.

Started as ``python -m sweep.cli.answer QUESTION``. The verb's output, files and exit code become
the answer, one line on standard output; this process itself exits with 0 whenever there is one.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout

from sweep.cli.main import main as command_line
from sweep.cluster.submission import Answer, Question, find_root, is_same_root, pack_file
from sweep.study.advice import ADDRESS, ASKED_FROM
from sweep.study.lock import driving_jobs
from trainables.code_version import code_version
from trainables.errors import SweepError
from trainables.machine import scratch


def answer(question: Question) -> Answer:
    """Run the verb here, at the cluster's storage; an export or a report comes with its files."""
    try:
        root = find_root(question.storage)
    except SweepError as error:
        return Answer(error.exit_code, err=f"sweep: {error}\n", version=code_version())
    words = [*question.words, "--storage", root]
    driving_jobs.set({s: job for s, job, own in question.drivers if is_same_root(own, root)})
    os.environ.pop(ADDRESS, None)  # the verb runs here
    os.environ[ASKED_FROM] = question.client_options
    if words[0] not in ("export", "report"):
        return _run_verb(words)
    with scratch.held_folder(kind="answer-") as folder:
        out = folder / "out"
        ran = _run_verb([*words, "--out", str(out)])
        files = {
            str(file.relative_to(out)): pack_file(file.read_bytes())
            for file in out.rglob("*")
            if file.is_file()
        }
    return Answer(ran.code, "", ran.err, ran.version, files)


def _run_verb(words: list[str]) -> Answer:
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            command_line.main(args=words, prog_name="sweep")
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except Exception:  # for the laptop: nobody reads this job's log
            traceback.print_exc()
            code = 1
    return Answer(code, out.getvalue(), err.getvalue(), code_version())


def main() -> None:
    """Answer the question on the command line."""
    print(answer(Question.parse(sys.argv[1])).to_line(), flush=True)


if __name__ == "__main__":
    main()
