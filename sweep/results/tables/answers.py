"""Answers that both arms of a pair wrote: side by side, and as lists.

Of the first search seed of the pair that a setting shows. The lists have the fields of AlpacaEval's
model outputs, one generator a file (github.com/tatsu-lab/alpaca_eval): ``instruction``, ``output``
and ``generator``. The instruction is the prompt, which is its own with the template ``plain``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from sweep.results.sweep_view import SettingView, SweepView
from trainables.plain import Json
from trainables.records.arm_record import ArmRecord
from trainables.records.evaluation import Answer


def answer_files(view: SweepView) -> dict[str, str]:
    """The files by name; none where no network wrote anything."""
    files: dict[str, str] = {}
    pages = []
    for setting in view.settings:
        arms = _arms(setting)
        lists = [pair for name, record in arms.items() for pair in _lists(setting, name, record)]
        for name, rows in lists:
            text = json.dumps(rows, indent=1, ensure_ascii=False)
            files[f"answers/{setting.setting.name}/{name}.json"] = text + "\n"
        if lists:
            pages.append(_page(setting, arms))
    if pages:
        files["answers.md"] = "\n".join(["# Answers of both arms", *pages])
    return files


def _arms(setting: SettingView) -> dict[str, ArmRecord]:
    shown = setting.chosen.shown
    if shown is None:
        return {}
    return {record.config.arm: record for record in shown.pairs[0].arms}


def _answers(record: ArmRecord) -> list[Answer]:
    return [] if record.evaluation is None else record.evaluation.answers


def _lists(
    setting: SettingView, arm: str, record: ArmRecord
) -> Iterator[tuple[str, list[dict[str, Json]]]]:
    answers = _answers(record)
    for gamma in dict.fromkeys(answer.gamma for answer in answers):
        name = f"{arm}-g{gamma:g}"
        yield (
            name,
            [
                {
                    "instruction": answer.prompt.strip(),
                    "output": answer.written,
                    "generator": f"{setting.setting.name} {name}",
                    "dataset": record.config.data.name,
                }
                for answer in answers
                if answer.gamma == gamma
            ],
        )


def _page(setting: SettingView, arms: dict[str, ArmRecord]) -> str:
    """A section: every prompt at every gamma, the data set's answer and both arms'."""
    written = {
        arm: {(a.prompt, a.gamma): a for a in _answers(record)} for arm, record in arms.items()
    }
    keys = dict.fromkeys(key for answers in written.values() for key in answers)
    lines = ["", f"## {setting.setting.name}"]
    for key in keys:
        prompt, gamma = key
        known = next(answers[key] for answers in written.values() if key in answers)
        lines += ["", f"### {_one_line(prompt)} (gamma {gamma:g})", ""]
        lines += [f"* data: {_one_line(known.reference)}"]
        lines += [
            f"* {arm}: {_one_line(answers[key].written)}"
            for arm, answers in written.items()
            if key in answers
        ]
    return "\n".join(lines)


def _one_line(text: str) -> str:
    """A model's answer as inert code: none of it becomes a tag, link, mention or formula."""
    plain = " ".join(text.split())
    if not plain:
        return "(nothing)"
    fence = "`" * (1 + max(map(len, re.findall("`+", plain)), default=0))
    space = " " * ("`" in plain)  # one on either side is no part of the code
    return f"{fence}{space}{plain}{space}{fence}"
