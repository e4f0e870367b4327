"""Win rates by alpaca_eval and a judge on loopback: counts by hand, and a published table."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweep.report.answers import Answer, Instruction, read_instructions, set_name, write_answers
from sweep.report.win_rates import Judge
from tests.support.data.instruction_runs import instruction_task, tiny_instructions
from tests.support.servers.judges import judge_server
from trainables.build import build_model
from trainables.errors import BadData, Failure, InvalidValue, Misuse
from trainables.predictors.answerer import Answerer
from trainables.training import to_bytes


def answers(outputs: list[str], generator: str) -> list[Answer]:
    return [Answer("d", f"Question {i}?", output, generator) for i, output in enumerate(outputs)]


def stored(path: Path) -> list[Answer]:
    return [Answer(**row) for row in json.loads(path.read_text())]


def longer(first: str, second: str) -> bool:
    return len(first) > len(second)


# --- instructions ---------------------------------------------------------------------------------


def test_instructions_are_read_with_their_inputs(tmp_path: Path) -> None:
    path = tmp_path / "asked.json"
    path.write_text(json.dumps([
        {"instruction": "Name it.", "input": "a river", "dataset": "ours"},
        {"instruction": "Name it.", "output": "no part of what is asked"},
    ]))  # fmt: skip
    found = read_instructions(path)
    assert found == [Instruction("Name it.", "a river", "ours"), Instruction("Name it.")]
    assert [i.judged_text for i in found] == ["Name it.\n\na river", "Name it."]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "cannot be read"),
        ("[]", "holds no list"),
        ('{"instruction": "x"}', "holds no list"),
        ("[1]", "row 0 of"),
        ('[{"instruction": "x"}, {"instruction": " "}]', "row 1 of"),
        ('[{"instruction": "x", "input": 3}]', "row 0 of"),
        ('[{"instruction": "x"}, {"instruction": "y"}, {"instruction": "x"}]', "rows 0 and 2"),
    ],
)
def test_damaged_instructions_are_refused(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "asked.json"
    path.write_text(content)
    with pytest.raises(BadData, match=said):
        read_instructions(path)
    with pytest.raises(BadData, match="cannot be read"):
        read_instructions(tmp_path / "none.json")


def test_a_set_is_called_by_its_file_and_what_is_in_it(tmp_path: Path) -> None:
    one, other = [Instruction("Name it.")], [Instruction("Name it.", "a river")]
    assert set_name(None, ()) == "held-out"
    names = {set_name(tmp_path / "a.json", one), set_name(tmp_path / "a.json", other)}
    assert len(names) == 2
    assert all(re.fullmatch(r"a-[0-9a-f]{8}", name) for name in names)
    assert set_name(tmp_path / "elsewhere" / "a.json", one) in names


# --- lists of answers -----------------------------------------------------------------------------


@pytest.fixture(name="arm")
def _arm(tmp_path: Path) -> Answerer:
    config = tiny_instructions(tmp_path)
    model = build_model(config, instruction_task(config))
    return Answerer(config, to_bytes({"model": model.state_dict()}))


def test_a_list_grows_and_nothing_is_asked_twice(arm: Answerer, tmp_path: Path) -> None:
    asked = [(Instruction(p.text.strip()), p) for p in arm.held_out(6)]
    path = tmp_path / "lists" / "one.json"
    whole = list(write_answers(path, "g", asked, 0.25, arm, 4))
    assert whole == stored(path)
    assert [row.instruction for row in whole] == [i.judged_text for i, _ in asked]
    assert [row.output for row in whole] == [arm.answer(p, 0.25, 4).written for _, p in asked]

    kept = [row._replace(output="kept") for row in whole[:4]]
    path.write_text(json.dumps([row._asdict() for row in kept]))
    assert list(write_answers(path, "g", asked, 0.25, arm, 4)) == kept + whole[4:]
    grown = stored(path)
    assert grown == kept + whole[4:]
    few = [asked[3], asked[1]]
    assert list(write_answers(path, "g", few, 0.25, arm, 4)) == [kept[3], kept[1]]
    assert stored(path) == grown


def test_a_list_that_is_stopped_keeps_every_answer(arm: Answerer, tmp_path: Path) -> None:
    asked = [(Instruction(p.text.strip()), p) for p in arm.held_out(6)]
    path = tmp_path / "one.json"
    answers = write_answers(path, "g", asked, 0.25, arm, 4)
    first = [next(answers) for _ in range(3)]
    answers.close()
    assert stored(path) == first


def test_lists_of_others_are_left_alone(arm: Answerer, tmp_path: Path) -> None:
    asked = [(Instruction(p.text.strip()), p) for p in arm.held_out(2)]
    path = tmp_path / "one.json"
    list(write_answers(path, "an arm-128", asked, 0.25, arm, 4))
    before = path.read_text()
    with pytest.raises(Misuse, match=r"has answers of an arm-128.*are of an arm-4.*another --out"):
        list(write_answers(path, "an arm-4", asked, 0.25, arm, 4))
    assert path.read_text() == before
    path.write_text("half a list")
    with pytest.raises(Misuse, match=r"no list of answers.*Remove it"):
        list(write_answers(path, "an arm-128", asked, 0.25, arm, 4))


# --- judges ---------------------------------------------------------------------------------------


def test_win_rates_are_shares_of_wins_and_ties_are_half(tmp_path: Path) -> None:
    """Whatever the order in which the answers are shown, which is the package's own."""
    ours = answers(["long answer", "x", "equal", "much longer", "aa"], "ours")
    theirs = answers(["short", "longer", "equal", "no", "bbbb"], "theirs")
    with judge_server(tmp_path, longer) as server:
        judge = Judge(server.config, tmp_path)
        found = judge.compare(ours, theirs)
        assert len(server.asked) == 4  # of two equal answers it is not asked
        scores = [1.0, 0.0, 0.5, 1.0, 0.0]
        assert (found.judged, found.equal) == (5, 1)
        assert found.win_rate == pytest.approx(100 * np.mean(scores))
        assert found.standard_error == pytest.approx(100 * np.std(scores, ddof=1) / 5**0.5)
        assert (found.length_controlled, found.lc_standard_error) == (None, None)
        again = Judge(server.config, tmp_path)
        assert again.compare(ours, theirs) == found
        assert len(server.asked) == 4  # nor twice
        turned = again.compare(theirs, ours)
        assert turned.win_rate == pytest.approx(100 - found.win_rate)


def test_a_published_table_of_judgements_gives_its_own_win_rate(
    tmp_path: Path, real_data: Path
) -> None:
    """AlpacaEval's of alpaca-7b against text_davinci_003, by GPT-4: told again by our judge."""
    name = "annotations_alpaca-7b_vs_text_davinci_003_by_alpaca_eval_gpt4.json"
    told: list[dict[str, Any]] = json.loads((real_data / "alpaca_eval" / name).read_text())[:80]
    told = [row for row in told if row["preference"] in (1, 2)]
    best = {(r["output_1"].strip(), r["output_2"].strip()): r["preference"] == 1 for r in told}

    def as_told(first: str, second: str) -> bool:
        pair = (first.strip(), second.strip())
        return best[pair] if pair in best else not best[pair[::-1]]

    lists = [[Answer("", r["instruction"], r[f"output_{k}"], str(k)) for r in told] for k in (1, 2)]
    with judge_server(tmp_path, as_told) as server:
        found = Judge(server.config, tmp_path).compare(lists[1], lists[0])
    assert len(told) > 60
    assert found.win_rate == pytest.approx(100 * np.mean([r["preference"] - 1 for r in told]))


def test_a_judge_that_fails_keeps_what_was_judged(tmp_path: Path) -> None:
    count, most = 35, 25
    ours = answers(["x" * (n % 7) for n in range(count)], "ours")
    theirs = answers(["x" * (n % 5) + "y" for n in range(count)], "theirs")
    differ = sum(a.output != b.output for a, b in zip(ours, theirs, strict=True))
    with judge_server(tmp_path, longer) as server:
        server.refuses_after = most
        with pytest.raises(Failure, match=r"the judge failed: BadRequestError.*same command"):
            Judge(server.config, tmp_path).compare(ours, theirs)
        server.refuses_after = None
        found = Judge(server.config, tmp_path).compare(ours, theirs)
        # at most the last ten, which were under way, are asked for again
        assert differ <= len(server.asked) <= differ + 10 < differ + most
    assert found.judged == count


def test_answers_that_were_not_judged_are_told_and_asked_for_again(tmp_path: Path) -> None:
    ours, theirs = answers(["aaa", "b"], "ours"), answers(["a", "bb"], "theirs")
    with judge_server(tmp_path, longer) as server:
        judge = Judge(server.config, tmp_path)
        judge.compare(ours[:1], theirs[:1])
        server.mumbles = True
        assert judge.compare(ours, theirs).judged == 1
        with pytest.raises(Failure, match=r"1 pairs of answers, and no reply names"):
            judge.compare(ours[1:], theirs[1:])
        server.mumbles = False
        server.asked.clear()
        found = Judge(server.config, tmp_path).compare(ours, theirs)
        assert server.asked in ([("b", "bb")], [("bb", "b")])
    assert (found.judged, found.win_rate) == (2, pytest.approx(50.0))


def test_another_judge_of_the_same_name_is_asked_anew(tmp_path: Path) -> None:
    ours, theirs = answers(["aaa", "bb"], "ours"), answers(["a", "b"], "theirs")
    with judge_server(tmp_path, longer) as server:
        one = Judge(server.config, tmp_path)
        one.compare(ours, theirs)
        template = tmp_path / "template.txt"
        template.write_text(template.read_text().replace("Q[", "Q[Say which is better: "))
        other = Judge(server.config, tmp_path)
        other.compare(ours, theirs)
        assert len(server.asked) == 4
    assert one.name != other.name
    assert one.name.startswith("judge-")
    assert len(list(tmp_path.glob("judged-judge-*.json"))) == 2


def test_a_damaged_file_of_judgements_is_named(tmp_path: Path) -> None:
    ours, theirs = answers(["aaa", "bb"], "ours"), answers(["a", "b"], "theirs")
    with judge_server(tmp_path, longer) as server:
        Judge(server.config, tmp_path).compare(ours, theirs)
        (kept,) = tmp_path.glob("judged-*.json")
        kept.write_text(kept.read_text()[:-30])
        with pytest.raises(BadData, match=rf"judgements in {kept}.*Remove the file"):
            Judge(server.config, tmp_path)


def test_unknown_judges_are_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"--judge nobody is no annotator.*weighted_alpaca_eval"):
        Judge("nobody", tmp_path)


def test_length_controlled_rates_need_alpaca_evals_own_instructions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its table of difficulties is written here, where the Hub's downloads lie."""
    import alpaca_eval.constants
    import huggingface_hub.constants

    count = 60
    draws = np.random.default_rng(0)
    outputs = [["x" * n for n in draws.integers(1, 200, count)] for _ in range(2)]
    ours, theirs = answers(outputs[0], "ours"), answers(outputs[1], "theirs")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)  # no retries
    monkeypatch.setattr(alpaca_eval.constants, "DEFAULT_CACHE_DIR", str(tmp_path / "hub"))
    with judge_server(tmp_path, longer) as server:
        judge = Judge(server.config, tmp_path, length_controlled=True)
        with pytest.raises(Failure, match=r"no length-controlled win rate.*df_gamed\.csv"):
            judge.compare(ours, theirs)
        write_difficulties(tmp_path / "hub", count, draws)
        found = judge.compare(ours, theirs)
    share = np.mean([len(a) > len(b) for a, b in zip(*outputs, strict=True)])
    assert found.win_rate == pytest.approx(100 * share)
    assert found.length_controlled is not None
    # length alone decides here, so that at equal lengths neither arm is better
    assert abs(found.length_controlled - 50) < 8
    assert found.lc_standard_error is not None


def write_difficulties(cache: Path, count: int, draws: np.random.Generator) -> None:
    """What the package downloads: answers of two models that game it, and how hard each is."""
    kept = cache / "datasets--tatsu-lab--alpaca_eval"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text("0" * 40)
    folder = kept / "snapshots" / ("0" * 40)
    folder.mkdir(parents=True)
    lines = ["model,index,preference,std_delta_len,instruction_difficulty,not_gamed_baseline"]
    hard = draws.normal(size=count)
    for model, length in (("concise", -1.0), ("verbose", 1.0)):
        for index in range(count):
            share = 1 / (1 + np.exp(-2 * length))
            lines.append(f"{model},{index},{share:.4f},{length},{hard[index]:.4f},False")
    (folder / "df_gamed.csv").write_text("\n".join(lines) + "\n")


def test_the_words_of_both_packages_agree() -> None:
    """What the option says is installed, as pyproject.toml has it."""
    text = Path("pyproject.toml").read_text()
    wanted = re.search(r'^judge = \["(alpaca_eval[^"]+)", "(setuptools[^"]+)"\]', text, re.M)
    assert wanted is not None
    said = Path("sweep/report/win_rates.py").read_text()
    assert all(f"'{name}'" in said for name in wanted.groups())
