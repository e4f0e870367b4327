"""Space files: those of users in Python and JSON, configurations, and what is wrong in them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import sweep
from search_spaces import catalog
from search_spaces.space import SearchSpace, Setting, Uniform
from tests.support.oracles import TINY
from tests.support.sweeps import SPACE
from trainables.errors import InvalidValue, Misuse, UnknownName

SPACE_FILE = """
from search_spaces.space import SearchSpace, Setting, Uniform
from trainables.config.arm import ConstraintConfig, ArmConfig

SPACE = SearchSpace(
    name="mine",
    summary="my own",
    base=ArmConfig(constraint=ConstraintConfig()),
    settings=(Setting("only", {}),),
    ranges={"constraint.alpha": Uniform(0.05, 0.2)},
)
"""


def test_a_space_file_of_ones_own_is_found(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(SPACE_FILE)
    assert catalog.find(str(path)).name == "mine"


def test_a_space_in_json_is_found(tmp_path: Path) -> None:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(SPACE.to_json()))
    assert catalog.find(str(path)).space == SPACE


@pytest.mark.parametrize("what", ["space", "setting", "point"])
def test_a_name_too_long_for_a_file_is_refused_in_a_new_space(what: str, tmp_path: Path) -> None:
    long = "x" * 151
    points = {long if what == "point" else "one": {"constraint.alpha": 0.1}}
    settings = (Setting(long if what == "setting" else "a", {}, points=points),)
    space = replace(SPACE, name=long if what == "space" else "tiny", settings=settings)
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(space.to_json()))
    said = f"{what}'s name must be at most 150 characters, got 'xxx"
    with pytest.raises(InvalidValue, match=said):
        catalog.find(str(path))
    with pytest.raises(InvalidValue, match=said):
        sweep.run(space, storage=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_how_a_space_runs_is_kept() -> None:
    packed = catalog.with_values(SPACE, {"gpus_per_arm": "measured", "stall_after_s": 60})
    assert SearchSpace.from_json(packed.to_json()) == packed
    assert packed.to_json()["gpus_per_arm"] == "measured"


def test_the_config_of_one_arm_is_found_as_its_pair(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for config in (TINY, TINY.unconstrained()):
        path.write_text(json.dumps(config.to_json()))
        space = catalog.find(str(path)).space
        run = space.run(space.settings[0], {}, seed=space.search_seeds[0])
        assert config in (run, run.unconstrained())


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.py", "SPACE = 3", "must be a SearchSpace, got int"),
        ("a.py", "", "must define SPACE"),
        (
            "a.py",
            "import nothing_like_this",
            "line 1, stops with ModuleNotFoundError: .*It may import what lies in .* or is inst",
        ),
        ("a.py", "\n\nSPACE = ", r"line 3, stops with SyntaxError: invalid syntax\.$"),
        (
            "a.py",
            "from search_spaces.space import SearchSpace\nSearchSpace(proposals=8)",
            "a.py, line 2: unknown field of SearchSpace 'proposals'. .*mean 'n_proposals'",
        ),
        ("a.py", "\nimport sys\nsys.exit(3)", "line 3, stops with SystemExit: 3"),
        ("a.py", "raise SystemExit('no')", "line 1, stops with SystemExit: no"),
        ("a.py", "\nraise SyntaxError('odd')", "line 2, stops with SyntaxError: odd"),
        ("a.py", SPACE_FILE.replace("constraint.alpha", "constraint.alhpa"), "mean.*alpha"),
        ("a.py", SPACE_FILE.replace("0.05, 0.2", "0.2, 0.05"), "a range must run from"),
        ("a.json", "{", "not readable JSON"),
        ("a.json", "[]", "must hold a JSON object"),
        ("a.json", "{}", "a search space needs name, base, settings"),
        ("a.json", '{"kind": "descent-sweep configuration"}', "neither a search space nor"),
        ("a.json", json.dumps(SPACE.to_json() | {"sampler": "x"}), "unknown sampler"),
        ("a.json", json.dumps(SPACE.to_json() | {"sampler": 3}), "unknown sampler '3'"),
        ("a.json", json.dumps(SPACE.to_json() | {"summary": 3}), "summary must be text, got 3"),
        ("a.json", json.dumps(SPACE.to_json() | {"name": None}), "name must be text, got None"),
        ("a.json", json.dumps(SPACE.to_json() | {"n_proposals": "x"}), "n_proposals must be a wh"),
        ("a.json", json.dumps(SPACE.to_json() | {"n_proposals": 2.5}), "n_proposals must be a wh"),
        ("a.json", json.dumps(SPACE.to_json() | {"n_proposals": True}), "n_proposals must be a w"),
        ("a.json", json.dumps(SPACE.to_json() | {"sampler_seed": "x"}), "sampler_seed must be a"),
        ("a.json", json.dumps(SPACE.to_json() | {"search_seeds": "01"}), "search_seeds must be a"),
        ("a.json", json.dumps(SPACE.to_json() | {"gpus_per_arm": 2}), "gpus_per_arm must be a"),
        ("a.json", json.dumps(SPACE.to_json() | {"gpus_per_arm": "x"}), "or 'measured', got 'x'"),
        ("a.json", json.dumps(SPACE.to_json() | {"stall_after_s": 0}), "stall_after_s must be a p"),
        ("a.json", json.dumps(SPACE.to_json() | {"settings": [{}]}), "neither|setting"),
        ("a.json", json.dumps(SPACE.to_json() | {"ranges": []}), "neither"),
        ("a.json", json.dumps(SPACE.to_json() | {"typo": 1}), "unknown field"),
        ("a.yaml", "", "must end in .py or .json"),
    ],
)
def test_a_file_that_defines_no_space_says_what_is_wrong(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(Misuse, match=message) as caught:
        catalog.find(str(path))
    assert name in str(caught.value)


def test_a_file_that_is_named_without_its_ending_is_pointed_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownName) as caught:
        catalog.find("my_space")
    assert "Did you mean" not in str(caught.value)
    (tmp_path / "my_space.py").touch()
    (tmp_path / "of_net").mkdir()
    for name in ("net_space", "other"):
        (tmp_path / "of_net" / f"{name}.py").touch()
    for got, meant in (
        ("my_space", "my_space.py"),
        ("myspace", "my_space.py"),
        ("my_space.py/", "my_space.py"),
        ("of_net/my_space.py", "my_space.py"),
        ("~/my_space.py", "my_space.py"),
        ("net_space.py", "of_net/net_space.py"),
        ("net", "of_net/net_space.py"),
        ("net.py", "of_net/net_space.py"),
        ("of_net/net.py", "of_net/net_space.py"),
        ("quickstrat", "quickstart"),
    ):
        with pytest.raises(Misuse, match=rf"\. Did you mean '{meant}'\? (Built-in: |Give a )"):
            catalog.find(got)
    for unrelated in ("nets_space.py", "zzz", "bad_spaces.json"):  # of whose name "_space" is most
        with pytest.raises(Misuse) as caught:
            catalog.find(unrelated)
        assert "of_net" not in str(caught.value)


def test_a_folder_is_answered_with_the_space_file_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_net").mkdir()
    (tmp_path / "my_net" / "my_net_space.py").touch()
    (tmp_path / "my_net" / "my_net.py").touch()
    for got in ("my_net", "my_net/"):
        with pytest.raises(Misuse, match=r"Did you mean 'my_net/my_net_space\.py'\?"):
            catalog.find(got)


def test_a_file_by_its_relative_path_says_the_line_it_stops_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.py").write_text("\n1 / 0")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Misuse, match=r"space file a\.py, line 2, stops with ZeroDivisionError"):
        catalog.find("a.py")


def _configuration(**changes: object) -> dict[str, object]:
    config = TINY.with_fields({"seed": 0})
    arm = {"signature": "a" * 16, "status": "finished", "evaluation": {}, "environment": {}}
    run = {"config": config.to_json(), "constrained": arm, "unconstrained": None}
    plain = {"kind": catalog.CONFIGURATION, "sweep": "s", "space": "mine", "setting": "only"}
    return {**plain, "proposal": 0, "training_version": 1, "runs": {"0": {**run, **changes}}}


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        (_configuration() | {"runs": {}}, "runs must hold a run for each seed"),
        (_configuration() | {"runs": [1]}, "runs must hold a run for each seed"),
        (_configuration() | {"training_version": None}, "training_version must be a whole number"),
        (_configuration(constrained={"signature": "a"}), "status, evaluation, environment"),
        (_configuration(constrained=None), "the constrained arm of seed 0 must have"),
        (_configuration(unconstrained=3), "the unconstrained arm of seed 0 must have"),
    ],
)
def test_a_damaged_configuration_is_refused_when_it_is_read(
    tmp_path: Path, plain: dict[str, object], message: str
) -> None:
    path = tmp_path / "only.json"
    path.write_text(json.dumps(_configuration()))
    assert catalog.find(str(path)).name == "only"
    path.write_text(json.dumps(plain))
    with pytest.raises(InvalidValue, match=message):
        catalog.find(str(path))


@pytest.mark.parametrize("name", ["quick-start", "quickstrat", "ped2-ut"])
def test_a_name_that_is_nearly_one_of_ours_is_told_it(name: str) -> None:
    with pytest.raises(UnknownName, match=r"Did you mean '(quickstart|ped2_ut)'\?"):
        catalog.find(name)


def test_a_file_that_is_not_there_lists_what_can_be_given(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"does not exist.*quickstart"):
        catalog.find(str(tmp_path / "gone.py"))
    (tmp_path / "my_clips.py").touch()
    beside = str(tmp_path / "my_clips.py")
    for got, meant in (("my_clip.py", beside), ("quikstart.py", "quickstart")):
        with pytest.raises(Misuse, match=f"Did you mean '{meant}'"):
            catalog.find(str(tmp_path / got))
    with pytest.raises(Misuse, match=r"configuration\.$"):
        catalog.find(str(tmp_path / "nowhere" / "zzz.py"))
    with pytest.raises(Misuse, match="is a folder"):
        catalog.find(str(tmp_path))
    with pytest.raises(Misuse, match="cannot be looked up"):
        catalog.find("x" * 300 + ".py")
    with pytest.raises(Misuse, match=r"configuration\.$"):
        catalog.find("a\0/b.py")


def high_of(space: SearchSpace) -> float:
    (only,) = space.ranges.values()
    assert isinstance(only, Uniform)
    return only.high


def test_a_space_file_finds_what_lies_beside_it(tmp_path: Path) -> None:
    """Of every folder its own, as it is now, and nothing that hides what is installed."""
    alphas = {"one": 0.2, "other": 0.3}
    before = list(sys.path)
    for folder, alpha in alphas.items():
        (tmp_path / folder / "parts").mkdir(parents=True)
        (tmp_path / folder / "queue.py").write_text("raise SystemExit('not the real one')")
        (tmp_path / folder / "common_mine.py").write_text("from parts.more import HIGH")
        (tmp_path / folder / "parts" / "more.py").write_text(f"HIGH = {alpha}")
        text = SPACE_FILE.replace("0.05, 0.2", "0.05, HIGH")
        assert "HIGH" in text
        (tmp_path / folder / "space.py").write_text(
            f"import queue\nfrom common_mine import HIGH\n{text}"
        )
    for folder, alpha in alphas.items():
        space = catalog.find(str(tmp_path / folder / "space.py")).space
        assert high_of(space) == alpha
    assert sys.path == before
    (tmp_path / "one" / "parts" / "more.py").write_text("HIGH = 0.4  # mended")
    space = catalog.find(str(tmp_path / "one" / "space.py")).space
    assert high_of(space) == 0.4


def test_packages_installed_below_a_space_file_stay_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where .venv lies in the checkout: libraries in C cannot be imported twice."""
    installed = tmp_path / ".venv" / "site-packages"
    (installed / "compiled").mkdir(parents=True)
    (installed / "compiled" / "__init__.py").write_text("from compiled import part")
    (installed / "compiled" / "part.py").touch()
    (tmp_path / "beside.py").write_text("import compiled")
    (tmp_path / "space.py").write_text(f"import beside, compiled\n{SPACE_FILE}")
    monkeypatch.syspath_prepend(installed)
    catalog.find(str(tmp_path / "space.py"))
    assert {"compiled", "compiled.part"} <= sys.modules.keys()
    assert "beside" not in sys.modules
    for name in ("compiled", "compiled.part"):
        del sys.modules[name]
