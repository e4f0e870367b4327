"""Catalog of search spaces: by name, by file, or as an exported configuration.

Files are .py or .json. A space file defines ``SPACE``, and ``FULL`` where a larger variant is worth
having (``--full``). An exported configuration re-runs the pairs of one setting exactly and carries
the numbers expected.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from glob import escape
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import cast

import search_spaces
from search_spaces.paper.rows import setting as setting
from search_spaces.paper.rows import video_settings as video_settings
from search_spaces.paper.spaces import PAPER_SPACES
from search_spaces.settings import require_short_names
from search_spaces.space import HOW_IT_RUNS, Phase, SearchSpace, Setting
from trainables.config.arm import ArmConfig, field_of
from trainables.config.constraint import TOLERANCE, default_constraint
from trainables.errors import InvalidValue, Misuse, UnknownName, did_you_mean, require
from trainables.plain import Json

CONFIGURATION = "descent-sweep configuration"  # what an exported configuration says it is
# Modules of this package that define none.
_NO_SPACES = ("catalog", "effects", "paper", "ranges", "settings", "space", "start_points")
# What an exported configuration says of every arm.
_OF_AN_ARM = {"signature": str, "status": str, "evaluation": dict | None, "environment": dict}
_GONE = object()
# Fields of a space itself that `--set` may name, beside every field of ArmConfig.
SPACE_FIELDS = (
    "n_proposals", "sampler", "sampler_seed", "search_seeds", "tolerance", *HOW_IT_RUNS,
)  # fmt: skip


@dataclass(frozen=True)
class Expected:
    """The outcome that an exported configuration expects of training it again."""

    training_version: int
    arms: Mapping[str, Json]  # by signature: status, evaluation and environment


@dataclass(frozen=True)
class NamedSpace:
    """A search space, the name for sweeps of it, and the results expected of it, if any."""

    space: SearchSpace
    name: str  # what a sweep of it is called unless it is given a name
    expected: Expected | None = None  # of an exported configuration

    def __post_init__(self) -> None:
        if self.expected is None:
            require_short_names(self.space.name, self.space.settings)


def longer(space: SearchSpace, steps: int, *, eval_windows: int) -> SearchSpace:
    """A ``FULL`` variant: 16 proposals, trained for ``steps``, with ten reports."""
    values = {"steps": steps, "report_every": steps // 10, "eval_windows": eval_windows}
    return replace(space.with_base(values), n_proposals=16)


def space_names() -> list[str]:
    """The built-in search spaces."""
    modules = (module.name for module in pkgutil.iter_modules(search_spaces.__path__))
    return sorted({*modules, *PAPER_SPACES}.difference(_NO_SPACES))


def find(text: str, *, full: bool = False) -> NamedSpace:
    """The space that ``text`` names: built-in, a .py or .json file, or an exported configuration.

    Raises:
        UnknownName: no built-in space has this name.
        Misuse: the file is not there or defines no space.
    """
    if re.fullmatch(r"[\w-]+", text):
        if text not in space_names():
            known = f"Built-in: {', '.join(space_names())}."
            raise UnknownName(f"unknown search space {text!r}.{_nearest(Path(text))} {known}")
        paper = PAPER_SPACES.get(text)
        names = {"SPACE": paper} if paper else vars(import_module(f"search_spaces.{text}"))
        return _of_module(names, f"search space {text}", full=full)
    path, state = _looked_up(text)
    if state:
        raise Misuse(
            f"the space file {text or repr(text)} {state}.{_nearest(path)} Give a built-in space "
            f"({', '.join(space_names())}), a .py file that defines SPACE, a space in JSON, or an "
            "exported configuration."
        )
    if path.suffix == ".py":
        return _of_module(_run_file(path), f"space file {text}", full=full)
    if path.suffix != ".json":
        raise Misuse(f"a space file must end in .py or .json, got {text}.")
    if full:
        raise Misuse(f"{text} has no full variant: --full is for built-in spaces and .py files.")
    return _of_json(path)


def _nearest(path: Path) -> str:
    """A hint at the space file, or the built-in space, whose name comes closest to ``path``."""
    likely = [path.stem, f"{path.stem}_space"]
    shown: dict[str, str] = {}
    with suppress(OSError, ValueError):  # no folder can have this name, or be read
        for name in likely:  # in folders below by name alone
            file = f"{escape(name)}.py"
            shown |= {p.stem: str(p) for p in (*path.glob(file), *Path().glob(f"[!.]*/{file}"))}
        folders, kinds = (Path(), path.parent), ("*.py", "*.json")
        shown |= {p.stem: str(p) for folder in folders for kind in kinds for p in folder.glob(kind)}
    shown |= {name: name for name in space_names()}
    order = likely if path.suffix else reversed(likely)  # a folder NAME holds both
    same = [shown[name] for name in order if name in shown]
    return f" Did you mean {same[0]!r}?" if same else did_you_mean(path.stem, shown)


def _looked_up(text: str) -> tuple[Path, str]:
    """The path that ``text`` names, and why there is no file; empty when there is one."""
    path = Path(text)
    try:
        path = path.expanduser()
        if path.is_file():
            return path, "is a file, so leave out the /" * text.endswith("/")
        return path, "is a folder, perhaps for --data" if path.is_dir() else "does not exist"
    except (OSError, RuntimeError, ValueError) as error:  # too long, no such user, a null byte
        return path, f"cannot be looked up ({error})"


def only(space: SearchSpace, patterns: Sequence[str]) -> SearchSpace:
    """The space with those settings alone whose name matches a pattern (``--only``).

    ``*`` and ``?`` stand for any text and any character; upper and lower case differ. Without
    patterns it is the space itself.

    Raises UnknownName where a pattern matches no setting.
    """
    kept = matching([s.name for s in space.settings], patterns, space.name)
    return replace(space, settings=tuple(s for s in space.settings if s.name in kept))


def matching(names: Sequence[str], patterns: Sequence[str], owner: str) -> set[str]:
    """The settings' names that a pattern of ``--only`` matches; all, without any.

    Raises UnknownName where a pattern matches none of the settings of ``owner``.
    """
    kept = set() if patterns else set(names)
    for pattern in patterns:
        matches = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
        if not matches:
            raise UnknownName.among(f"setting of {owner}", pattern, names)
        kept.update(matches)
    return kept


def is_data_set(data: str) -> bool:
    """True when ``--data`` names a data set of the library `datasets`, and no folder."""
    return data.startswith("hf:")


def with_data_set(space: SearchSpace, name: str) -> SearchSpace:
    """The space on another data set of texts (``--data hf:NAME``) in the place of its own.

    Of a space of several data sets those settings stay that are of the first one.
    """
    if not space.base.facts.reads_texts:
        raise InvalidValue(
            f"--data {name} names texts, and {space.name} is of the task {space.base.task}. Give a "
            "folder, or choose a space of text_classification."
        )

    def data_set_of(setting: Setting) -> str:
        return str(setting.fields.get("data.name", space.base.data.name))

    first, label = data_set_of(space.settings[0]), re.sub(r"[^\w.-]", "-", name, flags=re.A)
    kept = tuple(
        replace(
            s,
            name=re.sub(f"^{re.escape(first)}(?=-|$)", label, s.name),
            fields={n: name if n == "data.name" else value for n, value in s.fields.items()},
        )
        for s in space.settings
        if data_set_of(s) == first
    )
    require_short_names(space.name, kept)
    return replace(space, base=space.base.with_fields({"data.name": name}), settings=kept)


def with_values(space: SearchSpace, values: Mapping[str, Json]) -> SearchSpace:
    """The space with fields of its own or of its base run replaced (``--set name=value``)."""
    for name in values:
        field_of(name, SPACE_FIELDS)
    if "seed" in values:
        raise InvalidValue(
            "seed is set by search_seeds (--seeds): every proposal is trained on each."
        )
    space = space.with_base({n: v for n, v in values.items() if n not in SPACE_FIELDS})
    return replace(space, **{n: v for n, v in values.items() if n in SPACE_FIELDS})


def unconstrained_arms(space: SearchSpace) -> dict[str, ArmConfig]:
    """The unconstrained arms of a space by signature: one that settings share occurs once."""
    arms = (
        space.run(setting, {}, seed=seed).unconstrained()
        for setting in space.settings
        for seed in space.search_seeds
    )
    return {arm.signature(): arm for arm in arms}


def constrained_count(space: SearchSpace, setting: Setting) -> int:
    """The number of constrained arms that a sweep of the space trains in one setting."""
    return space.points_tried(setting) * len(space.search_seeds)


def arm_count(space: SearchSpace) -> int:
    """The number of arms that a sweep trains; a shared unconstrained arm counts once."""
    constrained = sum(constrained_count(space, setting) for setting in space.settings)
    return len(unconstrained_arms(space)) + constrained


def _of_module(names: Mapping[str, Json], where: str, *, full: bool) -> NamedSpace:
    wanted = "FULL" if full else "SPACE"
    space = names.get(wanted)
    if space is None:
        advice = " Run it without --full." if full and "SPACE" in names else ""
        raise Misuse(f"{where} must define {wanted} = SearchSpace(...), got no {wanted}.{advice}")
    if not isinstance(space, SearchSpace):
        raise InvalidValue(f"{where}: {wanted} must be a SearchSpace, got {type(space).__name__}.")
    return NamedSpace(space, space.name)


def _run_file(path: Path) -> dict[str, Json]:
    """The names that a Python file defines; its own errors become one line that says where."""
    import runpy  # no built-in space needs it

    beside = str(path.absolute().parent)
    finder = _Beside(beside)
    sys.meta_path.append(finder)  # last: what lies there hides nothing that is installed
    try:
        return runpy.run_path(str(path), run_name=f"space_file_{path.stem}")
    except Misuse as error:
        line = _line_in(error, path).rstrip(",")
        raise type(error)(f"space file {path}{line}: {error}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the file raises, SystemExit too, is its own mistake
        line, what = _line_in(error, path), error.msg if isinstance(error, SyntaxError) else error
        hint = f" It may import what lies in {beside} or is installed: put the module there."
        hint *= isinstance(error, ImportError)
        raise Misuse(
            f"space file {path}{line} stops with {type(error).__name__}: {what}.{hint}"
        ) from error
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] in finder.names]:
            del sys.modules[name]  # another folder's may have its name


class _Beside:
    """Import finder for the modules in one folder; ``names`` holds those that it has found."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.names: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a top-level module in the folder; packages find their own modules."""
        spec = PathFinder.find_spec(name, [self._folder], target) if path is None else None
        if spec is not None:
            self.names.add(name)
        return spec


def _line_in(error: BaseException, path: Path) -> str:
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = None if line else error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f", line {line},"


def _of_json(path: Path) -> NamedSpace:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise Misuse(f"the space file {path} is not readable JSON: {error}") from error
    if not isinstance(plain, dict):
        raise InvalidValue(
            f"the space file {path} must hold a JSON object, got {type(plain).__name__}."
        )
    try:
        if plain.get("kind") == CONFIGURATION:
            return _of_configuration(plain)
        if "settings" not in plain and "task" in plain:
            return _of_run(ArmConfig.from_json(plain))
        space = SearchSpace.from_json(plain)
        return NamedSpace(space, space.name)
    except Misuse as error:
        raise type(error)(f"space file {path}: {error}") from error
    except (TypeError, LookupError, AttributeError, ValueError, OverflowError) as error:
        raise InvalidValue(
            f"the space file {path} is neither a search space nor an exported configuration: "
            f"{type(error).__name__}: {error}. `sweep export` writes configurations; "
            "search_spaces/space.py describes spaces."
        ) from error


def _of_run(config: ArmConfig) -> NamedSpace:
    """A space of one pair: the arm of this config (config.json of an MLflow run), and the other.

    Beside an unconstrained arm stands one constrained by its task's defaults.
    """
    constraint = config.constraint or default_constraint(config.task)
    detached = not constraint.grad_through_previous
    name = setting(
        config.data.name, config.model.name, config.model.layers, config.train_gamma,
        detached=detached,
    ).name  # fmt: skip
    space = SearchSpace(
        name="arm",
        summary=f"arm {config.signature()} again",
        base=replace(config, constraint=constraint),
        settings=(Setting(name, {}),),
        n_proposals=1,
        search_seeds=(config.seed,),
        sampler="random",
        phase=_phase(config),
    )
    return NamedSpace(space, f"arm-{config.signature()}")


def _of_configuration(plain: Mapping[str, Json]) -> NamedSpace:
    """A space of one setting and one point, whose arms have the signatures of the exported ones."""
    runs = plain["runs"]
    if not isinstance(runs, dict) or not runs:
        raise InvalidValue(f"runs must hold a run for each seed, got {runs!r}.")
    configs = {int(seed): ArmConfig.from_json(run["config"]) for seed, run in runs.items()}
    first = next(iter(configs.values()))
    for seed, config in configs.items():
        if config != dataclasses.replace(first, seed=seed):
            raise InvalidValue(f"the runs of {plain['setting']} differ in more than their seed.")
    baseline = plain.get("baseline") or {}
    points = {"again": {name: first.value_of(name) for name in baseline}} if baseline else {}
    space = SearchSpace(
        name=cast(str, plain["space"]),
        summary=f"{plain['setting']} of {plain['sweep']}, proposal {plain['proposal']}, again",
        base=first.with_fields(baseline),
        settings=(Setting(plain["setting"], {}, points=points),),
        n_proposals=1,
        search_seeds=tuple(configs),
        sampler="random",
        phase=_phase(first),
        tolerance=plain.get("tolerance", TOLERANCE),
        # Configurations that do not say so were exported when every pair was taken for selected.
        selected_seeds=tuple(configs) if plain.get("selection_biased", True) else (),
    )
    arms = {arm["signature"]: arm for seed, run in runs.items() for arm in _arms_of(seed, run)}
    version = plain.get("training_version")
    require(isinstance(version, int), "training_version", version, "a whole number")
    return NamedSpace(space, plain["setting"], Expected(cast(int, version), arms))


def _phase(config: ArmConfig) -> Phase:
    """The phase of the sweep that a run is repeated from: only confirmations read test."""
    return "confirmation" if config.measured_on == "test" else "search"


def _arms_of(seed: str, run: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    """The stored outcomes of the arms of one exported run; the unconstrained one may be unknown."""
    for arm in ("constrained", "unconstrained"):
        values = run.get(arm)
        if values is None and arm == "unconstrained":
            continue
        fields = values if isinstance(values, dict) else {}
        wrong = [n for n, kind in _OF_AN_ARM.items() if not isinstance(fields.get(n, _GONE), kind)]
        if wrong:
            raise InvalidValue(
                f"the {arm} arm of seed {seed} must have {', '.join(_OF_AN_ARM)}; missing or "
                f"of another type: {', '.join(wrong)}. Export the configuration again."
            )
        yield fields
