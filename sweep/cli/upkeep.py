"""The verbs around a sweep: ui, sync, register, rm."""

from __future__ import annotations

import click

from sweep.api.listed import newest_first
from sweep.cli.options import (
    ON_HEAD,
    given_storage,
    name_argument,
    named_here,
    newest_argument,
    only_option,
    open_sweep,
    storage_option,
    tell_that_it_is_here,
    winners_of,
)
from sweep.cli.sweep_options import Place, collected
from sweep.cluster import ask
from sweep.errors import AlreadyRunning
from sweep.slurm.folder import SlurmFolder, waiting_jobs
from sweep.study import advice
from sweep.study.advice import note
from sweep.study.arms import stored_arms
from sweep.study.definition import (
    definition_name,
    definition_of_any_version,
    folder,
    judged_arms,
    state_without_reading,
    sweep_names,
)
from sweep.study.lock import driver_of
from sweep.study.opening import find_sweep, named_place, open_store
from sweep.tracking.address import (
    TrackingError,
    is_server,
    known_id,
    place_of,
    remember_place,
    shown,
    sqlite_path,
    sweep_id,
    tracking_uri,
)
from sweep.tracking.database import refuse_other_schema
from trainables.errors import Failure, Misuse, SweepError, missing_plugin
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

mlflow_option = click.option(
    "--mlflow", metavar="URI", help="MLflow server. Default: where the sweep is tracked."
)


@click.command()
@newest_argument
@click.option(
    "--port", type=click.IntRange(1, 65535), default=5000, show_default=True, metavar="N",
    help="Local port to serve on.",
)  # fmt: skip
@click.option(
    "--url", "only_url", is_flag=True, help="Print the URL of the sweep's page, and serve nothing."
)
@mlflow_option
@collected(place=Place)
def ui(name: str | None, port: int, only_url: bool, mlflow: str | None, place: Place) -> None:
    """Serve MLflow locally and print the URL of a sweep's page.

    The page compares winners with plain training; the URLs of other views are printed after it.
    """
    from sweep.tracking import ui as tracking_ui

    if place.address is not None:
        words = ["ui", *([name] if name else []), "--url"]
        ask.show_page(place.address, given_storage(), words, port)
        return
    objects = open_store(place.storage)
    name = name or next(iter(newest_first(objects)), None)
    if name is None:
        uri = tracking_uri(objects.root, mlflow)
    else:
        with named_place(objects):  # MLflow has its numbers, whatever trained them
            uri = place_of(objects, definition_of_any_version(objects, name), mlflow)
    base = uri
    if not is_server(uri):
        if only_url:
            raise Failure(
                f"MLflow at {shown(uri)} is a database without a server, so that no page has a "
                "URL. `sweep ui` without --url serves it."
            )
        _refuse_unservable(objects, name, uri, port)
        base = f"http://{tracking_ui.HOST}:{port}"
    pages = {"": base}
    if name is not None:
        try:
            number = known_id(objects, name)
            pages = tracking_ui.experiment_urls(base, uri, name, number, storage=objects.root)
        except TrackingError as error:
            note(str(error))

    def print_pages() -> None:
        first, *others = pages.items()
        click.echo(first[1])
        for view, address in () if only_url else others:
            click.echo(f"{view}: {address}", err=True)
        if base != uri:
            click.echo("Ctrl-C ends the server.", err=True)

    if base == uri:
        print_pages()
    else:
        tracking_ui.serve(uri, port, print_pages)


def _refuse_unservable(objects: ObjectStore, name: str | None, uri: str, port: int) -> None:
    """Raise Misuse where MLflow's database or the port cannot be used."""
    from sweep.tracking import ui as tracking_ui

    tracking_ui.refuse_taken_port(port)
    again = advice.command("sync", name or "NAME", storage=objects.root)
    tracking_ui.refuse_damaged(uri, again)
    refuse_other_schema(uri)
    file = sqlite_path(uri)
    if name is None and file is not None and not file.exists():
        first = advice.command("run", "quickstart", storage=objects.root)
        raise Misuse(
            f"no sweeps below {objects.root}, so there is no MLflow to show. Start one with "
            f"`{first}`, or name another MLflow with --mlflow."
        )


@click.command()
@name_argument
@mlflow_option
@storage_option
def sync(name: str, mlflow: str | None, storage: str) -> None:
    """Write to MLflow the stored records that it lacks."""
    from sweep.api.training import sweep_pages
    from sweep.tracking import sources
    from sweep.tracking import tracker as tracking

    tell_that_it_is_here()
    objects, view = open_sweep(storage, name)
    uri = place_of(objects, view.definition, mlflow)
    tracker = tracking.Tracker(uri, sweep_id=sweep_id(objects, name))
    tracking.sync_all(tracker, sources.tracked_arms(objects, view.definition), say=click.echo)
    tracker.sync_sweep(sweep_pages(view, 0, objects.root))
    remember_place(objects, name, uri)


@click.command()
@name_argument
@click.option(
    "--arm", type=click.Choice(["constrained", "both"]), default="constrained", show_default=True,
    help="Register the winner only, or its unconstrained arm as well.",
)  # fmt: skip
@only_option
@mlflow_option
@storage_option
def register(
    name: str, arm: str, patterns: tuple[str, ...], mlflow: str | None, storage: str
) -> None:
    """Register the winners' networks in MLflow, as models that load without this store.

    A second call adds nothing. If the winner has changed, a new version is registered, and the
    alias moves to it.
    """
    from sweep.tracking.models import Models, arms_of

    tell_that_it_is_here()
    objects, view = open_sweep(storage, name)
    if view.definition.space.base.facts.answers:
        raise Misuse(
            f"the networks of {name} cannot be registered as models: they write answers token by "
            "token, which a model of one input does not. Their weights are in the store."
        )
    won = winners_of(objects, view, patterns, to="register")
    uri = place_of(objects, view.definition, mlflow)
    models = Models(uri, objects, name, known_id(objects, name))
    for setting, winner in won.items():
        for network in arms_of(setting, winner, both=arm == "both"):
            registered = models.register(network)
            state = "new" if registered.is_new else "as before"
            click.echo(f"{registered.uri}  (version {registered.version}, {state})")
    click.echo(f"Load one with MLFLOW_TRACKING_URI={shown(uri)}: mlflow.pyfunc.load_model(...)")


@click.command()
@name_argument
@click.option("--yes", is_flag=True, help="Delete without asking.")
@collected(place=Place)
def rm(name: str, yes: bool, place: Place) -> None:
    """Show, then delete, a sweep and the arms that no other sweep uses.

    MLflow keeps its experiment: delete that in its own UI. The store remembers that a deleted
    confirmation read the test split.
    """
    from sweep.confirmation import readings

    if place.address is not None and named_here("address"):
        raise Misuse(f"--address must name a slurm.yaml here, got {place.address}: {ON_HEAD}")
    if place.slurm is None:
        tell_that_it_is_here()
    objects = open_store(place.storage)
    if name not in sweep_names(objects):
        find_sweep(objects, name)
    _refuse_running(objects, name)
    own, others, unknown = _claims(objects, name)
    doomed = [] if unknown else sorted(own - others)
    size_mb = (sum(objects.size_of(f"arms/{s}") for s in doomed)) / 1e6
    click.echo(f"{objects.root}/{folder(name)}: the definition and its proposals")
    click.echo(f"{objects.root}/arms: {advice.counted(len(doomed), 'arm')}, {size_mb:.1f} MB")
    if own & others:
        click.echo(f"kept for other sweeps: {advice.counted(len(own & others), 'arm')}")
    if unknown:
        unread = ", ".join(f"{sweep} ({reason})" for sweep, reason in unknown.items())
        click.echo(f"no arm is deleted, since these sweeps may use any: {unread}")
    left = readings.left_by(objects, name, own)
    if left is not None:
        arms = advice.counted(left.final_arms, "arm")
        click.echo(
            f"{objects.root}/{readings.left_at(left)} is kept: {arms} were evaluated on the test "
            "split; later confirmations must report it"
        )
    if not yes:
        if not click.confirm(f"Delete the sweep {name}?"):
            click.echo("Nothing was deleted.")
            return
        _refuse_running(objects, name)  # a driver may have started since the question
        if doomed:
            doomed = sorted(set(doomed) - _claims(objects, name)[1])
    if left is not None:
        readings.leave(objects, left)
    store = ArmStore(objects)
    for signature in doomed:
        store.forget(signature)
    objects.delete_folder(folder(name))
    click.echo(f"Deleted {name}.")


def _refuse_running(objects: ObjectStore, name: str) -> None:
    driver = driver_of(objects, name)
    if driver is not None:
        stop = advice.command("stop", name, storage=objects.root)
        raise AlreadyRunning(f"{name} is running ({driver}): stop it with `{stop}` first.")
    if objects.is_local and (waiting := waiting_jobs(SlurmFolder(objects.root, name))):
        stop = advice.command("stop", name, address="slurm.yaml")
        raise AlreadyRunning(f"{name} has job {waiting} on Slurm: stop it with `{stop}` first.")


def _claims(objects: ObjectStore, name: str) -> tuple[set[str], set[str], dict[str, str]]:
    """The stored arms of a sweep, those of all others, and why sweeps cannot be read, by name.

    A definition without a training version is of an earlier release: its arms may have signatures
    that no version gives them now and no verdict lists, and are found by their configurations.
    """
    stored = set(objects.names("arms"))
    claimed: dict[str, set[str]] = {}
    current: dict[str, set[str]] = {}  # today's signatures of the arms of such a sweep
    unknown = {}
    for sweep in sweep_names(objects):
        try:
            arms = list(stored_arms(objects, definition_of_any_version(objects, sweep)))
            judged = judged_arms(objects, sweep)  # also those with other signatures today
            claimed[sweep] = ({arm.signature for arm in arms} | judged) & stored
            if "training_version" not in (objects.get_json(definition_name(sweep)) or {}):
                current[sweep] = {arm.config.signature() for arm in arms}
        except SweepError as error:
            plug_in = missing_plugin(error)
            unknown[sweep] = state_without_reading(error) + (f": {plug_in}" if plug_in else "")
    store = ArmStore(objects)
    for signature in stored.difference(*claimed.values()) if current else ():
        record = store.record(signature)
        for sweep, signatures in current.items():
            if record is not None and record.config.signature() in signatures:
                claimed[sweep].add(signature)
    own = claimed.pop(name, set())
    return own, set().union(*claimed.values()), unknown
