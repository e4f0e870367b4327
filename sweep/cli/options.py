"""Options that verbs share, and helpers for where to read and how to print."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem
from rich.console import Console

from search_spaces import catalog
from sweep.study import advice
from sweep.study.advice import ADDRESS, DEFAULT_STORAGE, STORAGE, note
from sweep.study.opening import named_place, open_store, refuse_key
from trainables.errors import InvalidValue, Misuse, SweepError
from trainables.plain import Json

if TYPE_CHECKING:  # numpy and pyarrow, which verbs that read no store do not need
    from sweep.results.sweep_view import Read, SweepView
    from sweep.study.pairs import ProposalResult, ReadRecord
    from trainables.records.objects import ObjectStore

Verb = TypeVar("Verb", bound=Callable[..., Any])

# --- completion -----------------------------------------------------------------------------------


def _completing(
    names: Callable[[click.Context], Sequence[str]], *, or_files: bool = False
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Completion of a word by names, and with ``or_files`` by files.

    It is silent: errors are reported by the verb itself, once it is called.
    """

    def complete(
        context: click.Context, parameter: click.Parameter, begun: str
    ) -> list[CompletionItem]:
        known: Sequence[str] = ()
        with suppress(Exception), redirect_stderr(io.StringIO()):
            known = names(context)
        items = [CompletionItem(name) for name in known if name.startswith(begun)]
        return [CompletionItem(begun, type="file"), *items] if or_files else items

    return complete


def _stored(context: click.Context) -> ObjectStore | None:
    """The store that this command line names; None where it is a cluster's."""
    if context.params.get("address"):
        return None
    return open_store(context.params.get("storage") or os.environ.get(STORAGE) or DEFAULT_STORAGE)


def _sweeps(context: click.Context) -> list[str]:
    from sweep.study.definition import sweep_names

    objects = _stored(context)
    return [] if objects is None else sweep_names(objects)


def _settings(context: click.Context) -> list[str]:
    """Settings of the sweep, or of the built-in space, that this command line names."""
    from sweep.study.definition import load_definition

    # an option whose value is still to come leaves the arguments where they were
    name = context.params.get("space") or context.params.get("name") or context.args[0]
    if context.info_name in ("spaces", "doctor") or "space" in context.params:
        space = catalog.find(name).space if name in catalog.space_names() else None
    else:
        objects = _stored(context)
        space = None if objects is None else load_definition(objects, name).space
    return [] if space is None else [setting.name for setting in space.settings]


def _cells(context: click.Context) -> list[str]:
    arms = ("", "/constrained", "/unconstrained")
    return [f"{setting}{arm}" for setting in _settings(context) for arm in arms]


complete_spaces = _completing(lambda _: catalog.space_names(), or_files=True)
complete_sweeps = _completing(_sweeps)
complete_cells = _completing(_cells)

# --- options --------------------------------------------------------------------------------------

storage_option: Callable[[Verb], Verb] = click.option(
    "--storage",
    metavar="DIR",
    envvar=STORAGE,
    default=DEFAULT_STORAGE,
    show_default="$SWEEP_STORAGE, else ./sweeps",
    help="Storage root, which holds everything that a sweep writes.",
)
accept_code_option: Callable[[Verb], Verb] = click.option(
    "--accept-code",
    is_flag=True,
    help="Continue a sweep whose arms were trained by other code; tables mark such pairs. "
    "Otherwise the sweep is refused.",
)
address_option: Callable[[Verb], Verb] = click.option(
    "--address",
    metavar="URL|YAML",
    envvar=ADDRESS,
    help="Cluster to ask: the URL of its dashboard, its cluster.yaml, or a slurm.yaml. Default: "
    "$SWEEP_ADDRESS, else this machine.",
)
json_option: Callable[[Verb], Verb] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for programs."
)
only_option: Callable[[Verb], Verb] = click.option(
    "--only",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    shell_complete=_completing(_settings),
    help="Keep only settings that match a name or pattern, such as 'ucsd_ped2-*'. Repeatable.",
)


class _SweepName(click.types.StringParamType):
    """Type of a sweep's name, whose message for a missing one lists the sweeps here."""

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str | None:
        names: Sequence[str] = ()
        with suppress(SweepError, OSError):
            names = () if ctx is None else _sweeps(ctx)
        return f"Sweeps here: {', '.join(names)}." if names else None


name_argument: Callable[[Verb], Verb] = click.argument(
    "name", metavar="NAME", type=_SweepName(), shell_complete=complete_sweeps
)
# For verbs that change nothing; see ``reading.name_or_newest``.
newest_argument: Callable[[Verb], Verb] = click.argument(
    "name", metavar="[NAME]", required=False, shell_complete=complete_sweeps
)


def given_storage() -> str | None:
    """The root that --storage names on this command line; None: a cluster's own is the default."""
    if not named_here("storage"):
        return None
    storage = str(click.get_current_context().params["storage"])
    refuse_key(storage)
    return storage


def named_here(option: str) -> bool:
    """True when an option was given on this command line, and is no default."""
    source = click.get_current_context().get_parameter_source(option)
    return source is ParameterSource.COMMANDLINE


def open_sweep(
    storage: str, name: str, read: Read = "records", *, record: ReadRecord | None = None
) -> tuple[ObjectStore, SweepView]:
    """The store and one sweep in it; ``read`` and ``record`` are those of ``load_sweep``."""
    from sweep.results.sweep_view import load_sweep

    objects = open_store(storage)
    with named_place(objects):
        return objects, load_sweep(objects, name, read, record=record)


def winners_of(
    objects: ObjectStore, view: SweepView, patterns: Sequence[str], *, to: str
) -> dict[str, ProposalResult]:
    """Winners of a sweep by matching setting; a note names the settings that have none.

    Args:
        objects: the store.
        view: the sweep, its records read.
        patterns: settings' names, as --only has them; none: all.
        to: the verb of what is done to a winner, for messages.

    Raises:
        Misuse: it is a confirmation, or no setting has a winner.
        UnknownName: no setting matches a pattern.
    """
    name = view.definition.name
    if view.definition.space.phase == "confirmation":
        problem = f"{name} is a confirmation, which chooses no winner"
        raise Misuse(f"{problem}: {to} the winners of the sweep that it confirms.")
    winners = {s.setting.name: s.chosen.winner for s in view.settings}
    kept = catalog.matching(list(winners), patterns, name)
    won = {setting: winner for setting in kept if (winner := winners[setting]) is not None}
    if not won:
        best = advice.command("best", name, storage=objects.root)
        raise Misuse(f"{name} has no winner to {to}: `{best}` says why.")
    if without := [setting for setting in kept if setting not in won]:
        note(f"{', '.join(without)}: left out, since they have no winner.")
    return won


_OF_PYTHON = {"True": "true", "False": "false", "None": "null"}  # as space files spell them


def parse_values(texts: Sequence[str]) -> dict[str, Json]:
    """``--set name=value``, repeated: JSON, Python's True, False and None, or text; no name twice.

    >>> parse_values(["steps=5e2", "sampler=random", "data.folder=null", "early_stop=False"])
    {'steps': 500, 'sampler': 'random', 'data.folder': None, 'early_stop': False}
    """
    values: dict[str, Json] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidValue(f"--set must be FIELD=VALUE, got {text!r}.")
        if name in values:
            raise InvalidValue(f"--set {name} is given twice; give it once.")
        try:
            values[name] = json.loads(_OF_PYTHON.get(value, value))
        except ValueError:
            values[name] = value
        number = values[name]
        if isinstance(number, float) and "e" in value.lower() and number.is_integer():
            values[name] = int(number)  # 1e3: people write integers so, and floats may be integers
    return values


def print_json(value: Json) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


ON_HEAD = "for the cluster's sweeps run it on its head (`ray exec CLUSTER_YAML 'sweep ...'`)."


def tell_that_it_is_here(instead: str | None = None) -> None:
    """Note that this verb stays on this machine, where SWEEP_ADDRESS sends others to a cluster.

    ``instead`` is the way to that cluster's sweeps; None: that of verbs which run beside them.
    """
    from sweep.slurm.slurm_yaml import is_slurm_yaml  # pyarrow, too

    address = os.environ.get(ADDRESS)
    if not address:
        return
    is_slurm = is_slurm_yaml(address)
    if is_slurm and named_here("storage"):
        return
    beside = f"for sweeps on Slurm give it the --storage that {address} names."
    verb = click.get_current_context().info_name
    way = instead or (beside if is_slurm else ON_HEAD)
    note(f"{ADDRESS} is set, but `sweep {verb}` is about this machine; {way}")


def console() -> Console:
    """Standard output for people: as wide as the terminal; in a pipe 80 columns, no colour."""
    return Console(file=sys.stdout, highlight=False, soft_wrap=False)


def renamed_option(first: str, name: str) -> Callable[[Verb], Verb]:
    """An option by an earlier name, hidden and refused: the message has its present name."""

    def refuse(context: click.Context, _: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise click.UsageError(f"{first} is called {name} now.", context)

    return click.option(first, hidden=True, expose_value=False, callback=refuse)
