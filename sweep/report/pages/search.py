"""Page of a search: what was asked and found, how sure it is, all numbers. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sweep.confirmation.plan import UNCONSTRAINED
from sweep.confirmation.words import sentences
from sweep.render.table import NOTHING, YES_NO, Columns, Table, number
from sweep.report.pages.markup import Paragraph, Picture, figures, fill_page, provenance_of
from sweep.results.findings import findings
from sweep.results.names import point_text
from sweep.results.summary import ArmSummary, SettingSummary
from sweep.results.verdict_text import certified_over, infeasible_seeds, verdict_lines
from sweep.study.selection import outcome_text
from trainables.plain import Json
from trainables.registry.lookup import facts_of


@dataclass(frozen=True)
class _Confirmation:
    """A confirmation of the search, in sentences."""

    name: str
    lines: Sequence[str]


@dataclass(frozen=True)
class _Setting:
    """A setting's part: its pair, the verdict in sentences, what trains it again."""

    name: str
    kind: str  # which pair is shown
    arms: Columns  # empty where no arm is measured
    lines: Sequence[str]
    commands: Mapping[str, str]


def page(
    status: Mapping[str, Json],
    summaries: Sequence[SettingSummary],
    tables: Iterable[Table],
    pictures: Mapping[str, Mapping[str, Picture]],
    provenance: Mapping[str, Json],
    commands: Mapping[str, Mapping[str, str]],
    confirmed: Sequence[Mapping[str, Json]],
) -> str:
    """The page as a text.

    Args:
        status: that of ``status_entry``, and of the sweep ``name``, ``space`` and ``summary``, and
            ``notes``: sentences on what the page leaves out.
        summaries: of the settings; a part each.
        tables: below the settings, in this order.
        pictures: pages by key, by the key of ``FIGURES``.
        provenance: what ``provenance.manifest`` says.
        commands: what to type by what it does: "next", "again", and by setting.
        confirmed: entries of its confirmations.
    """
    entries = [summary.to_json() for summary in summaries]
    return fill_page(
        "search.html.jinja",
        name=status["name"],
        what=status["summary"],
        question="Does a network that must lower its loss layer by layer do better than plain "
        "training?",
        answer=findings(summaries),
        comparison=_overview(entries),
        sure=[
            _tried(provenance, entries),
            *_doubts(status, entries),
            *_confirmed(confirmed),
        ],
        following=commands["next"],
        confirmations=[_confirmation(entry) for entry in confirmed],
        settings=[_setting(entry, commands.get(entry["setting"], {})) for entry in entries],
        pictures=figures(pictures),
        tables=list(tables),
        ranges=_ranges(provenance, entries),
        notes=_search_notes(status, provenance, entries),
        failures=[f"{f['setting']}, {f['signature']}: {f['reason']}" for f in status["failures"]],
        warnings=[f"{w['setting']}, {w['signature']}: {w['warning']}" for w in status["warnings"]],
        again=commands["again"],
        origin=provenance_of(provenance),
    )


# --- first screen ---------------------------------------------------------------------------------


def _tried(provenance: Mapping[str, Json], entries: Sequence[Mapping[str, Json]]) -> str:
    """How much was tried to answer the question."""
    space = provenance["definition"]
    seeds, count = len(space["search_seeds"]), len(entries)
    wanted = sorted({entry["proposals"]["wanted"] for entry in entries})
    tries = f"{wanted[0]} to {wanted[-1]}" if len(wanted) > 1 else f"{wanted[0]}" if wanted else "0"
    return (
        f"{count} setting{'s' * (count != 1)}, {tries} proposals each, every one on {seeds} "
        f"seed{'s' * (seeds != 1)} as a pair that differs in nothing but the constraint."
    )


def _doubts(
    status: Mapping[str, Json], entries: Sequence[Mapping[str, Json]]
) -> Iterator[str | Paragraph]:
    """How far the sweep is, how sure its verdicts are, and what selection did to its numbers."""
    arms = status["arms"]
    ends = ", ".join(f"{count} {how}" for how, count in status["statuses"].items())
    state = str(status["state"]).capitalize()
    done = f"{arms['final']} of {arms['wanted']} arms are final{f' ({ends})' * bool(ends)}."
    yield Paragraph(done, strong=state)
    if status["state"] not in ("finished", "failed"):
        training = f", {arms['training']} train now" * bool(arms["training"])
        yield Paragraph(
            f"This page is of a sweep that is not at its end{training}: winners can still change.",
            is_warning=True,
        )
    winners = [entry for entry in entries if entry["winner"]]
    sure = sum((entry["constrained"] or {}).get("certificate") == "feasible" for entry in winners)
    if winners:
        arms = [ArmSummary.from_json(entry["constrained"]) for entry in winners]
        others = "; of the others more units could turn the verdict" * (sure < len(winners))
        yield (
            f"{sure} of {len(winners)} winner{'s' * (len(winners) != 1)} "
            f"{'is' if sure == 1 else 'are'} certified feasible, by 95 % bounds over the held-out "
            f"units{certified_over(arms)}{others}."
        )
    for entry in winners:
        if seeds := infeasible_seeds(SettingSummary.from_json(entry)):
            yield Paragraph(
                f"The winner of {entry['setting']} is infeasible on {len(seeds)} of its "
                f"{len(entry['search_seeds'])} seeds: the verdict is of their mean.",
                is_warning=True,
            )
    if any(entry["gain"].get("selection_biased") for entry in entries):
        yield Paragraph(
            "Gains are of pairs that the search selected by these very scores: they "
            "flatter, and are no result before fresh seeds confirm them.",
            is_warning=True,
        )
    yield from status["notes"]


def _confirmed(confirmed: Sequence[Mapping[str, Json]]) -> Iterator[Paragraph]:
    if confirmed:
        names = ", ".join(entry["name"] for entry in confirmed)
        text = "On fresh seeds and the test split:"
        yield Paragraph(text, link="#confirmed", linked=names)


def _confirmation(entry: Mapping[str, Json]) -> _Confirmation:
    lines = [
        f"Plan {entry['plan']}; {whole_seeds(entry)} of {len(entry['seeds']['planned'])} planned "
        "seeds count.",
        *sentences(entry),
        *(f"Departs from the plan: {text}" for text in entry["deviations"]),
    ]
    return _Confirmation(entry["name"], lines)


def whole_seeds(entry: Mapping[str, Json]) -> int:
    """Seeds of a confirmation that count in every setting."""
    of = (one["contrasts"][UNCONSTRAINED]["counted"] for one in entry["settings"])
    return min(of, default=0)


def _overview(entries: Sequence[Mapping[str, Json]]) -> Table:
    """A row a setting: its pair, both arms out of distribution, and whether it is feasible."""
    metric = facts_of(entries[0]["task"]).metric if entries else None

    def of(entry: Mapping[str, Json], arm: str, key: str) -> Json:
        return (entry[arm] or {}).get(key)

    def pair(entry: Mapping[str, Json]) -> str:
        if entry["proposal"] is None:
            return "none yet"
        return ("winner" if entry["winner"] else "closest") + f", proposal {entry['proposal']}"

    label = "" if metric is None else f"{metric.label}, {metric.unit}"
    arm = "constrained"
    shown = [
        ("setting", [entry["setting"] for entry in entries]),
        ("gain, unseen", [number(of(e, "gain", "unseen_mean"), "+.3f") for e in entries]),
        ("feasible", [YES_NO[of(entry, arm, "feasible")] for entry in entries]),
        ("certificate", [of(entry, arm, "certificate") or NOTHING for entry in entries]),
        ("missing share", [number(of(e, arm, "worst_missing_share"), "+.2f") for e in entries]),
        ("pair", [pair(entry) for entry in entries]),
        ("unseen, constrained", [number(of(e, arm, "unseen_mean"), ".3f") for e in entries]),
        ("unseen, plain", [number(of(e, "unconstrained", "unseen_mean"), ".3f") for e in entries]),
        ("gain, seen", [number(of(e, "gain", "seen_mean"), "+.3f") for e in entries]),
    ]
    notes = [
        f"Scores: {label}, means over test gammas that training and selection never looked at "
        "(unseen) or did (seen), and over seeds. Gain: constrained against plain training, signed "
        "so that above 0 the constrained network is better."
    ]
    return Table("overview", "Every setting's pair", [], shown, notes, texts=1)


# --- settings -------------------------------------------------------------------------------------


def _setting(entry: Mapping[str, Json], commands: Mapping[str, str]) -> _Setting:
    tried = entry["proposals"]
    kind = "no pair yet"
    if entry["proposal"] is not None:
        kind = f"proposal {entry['proposal']}"
        kind = f"winner: {kind}" if entry["winner"] else f"no winner; the closest is {kind}"
    outcomes = outcome_text(entry["outcomes"])
    lines = [
        f"{tried['finished']} of {tried['wanted']} proposals finished: {outcomes}."
        if tried["finished"]
        else f"None of {tried['wanted']} proposals has finished."
    ]
    if entry["why"]:
        lines.append(f"Why there is no winner: {entry['why']}.")
    if entry["winner"] and entry["lost"]:
        lines.append(f"Why the others lost: {outcome_text(entry['lost'])}.")
    if entry["point"]:
        lines.append(f"Trained with {point_text(entry['point'])}.")
    if entry["proposal"] is not None:
        lines += [
            f"{line[0].upper()}{line[1:]}."
            for line in verdict_lines(SettingSummary.from_json(entry))
        ]
    if entry["vacuous"]:
        lines.append(
            "Not binding: plain training meets the constraint by itself, so the pair says nothing "
            "about constraining."
        )
    return _Setting(entry["setting"], kind, _arms(entry), lines, commands)


def _arms(entry: Mapping[str, Json]) -> Columns:
    """Both arms and the gain."""
    if entry["constrained"] is None and entry["unconstrained"] is None:
        return []
    metric = facts_of(entry["task"]).metric
    heads = ["", f"seen {metric.label}", f"unseen {metric.label}", "held-out loss"]
    heads += ["missing share", "feasible", "signature of its first seed"]
    rows = []
    for arm, words in (("constrained", "constrained"), ("unconstrained", "plain training")):
        values = entry[arm] or {}
        share = number(values.get("worst_missing_share"), "+.2f")
        last = [share, YES_NO[values.get("feasible")], values.get("signature") or NOTHING]
        rows.append([words, *_numbers(values, ".3f", ".3g"), *last])
    biased = " (selection-biased)" * bool(entry["gain"].get("selection_biased"))
    rows.append([f"gain{biased}", *_numbers(entry["gain"], "+.3f", "+.2g"), "", "", ""])
    return [(head, list(cells)) for head, cells in zip(heads, zip(*rows, strict=True), strict=True)]


def _numbers(values: Mapping[str, Json], form: str, of_loss: str) -> list[str]:
    scores = [number(values.get(key), form) for key in ("seen_mean", "unseen_mean")]
    return [*scores, number(values.get("held_out_loss"), of_loss)]


# --- search ---------------------------------------------------------------------------------------


def _ranges(provenance: Mapping[str, Json], entries: Sequence[Mapping[str, Json]]) -> Table:
    """Searched ranges, each with its settings."""
    space = provenance["definition"]
    named = {entry["setting"] for entry in entries}
    ranges: dict[tuple[str, str], list[str]] = {}
    for setting in space["settings"]:
        if setting["name"] in named:
            for field, values in {**space["ranges"], **setting["ranges"]}.items():
                ranges.setdefault((short(field), _range(values)), []).append(setting["name"])
    shown = [
        ("searched", [field for field, _ in ranges]),
        ("range", [values for _, values in ranges]),
        ("settings", ["all" if len(of) == len(named) else ", ".join(of) for of in ranges.values()]),
    ]
    return Table("searched", "What was searched", [], shown, [], texts=3)


def _search_notes(
    status: Mapping[str, Json],
    provenance: Mapping[str, Json],
    entries: Sequence[Mapping[str, Json]],
) -> list[str]:
    """Sampler, seeds, outcomes of the proposals, and searches that ended early."""
    sampler, seeds = provenance["sampler"], ", ".join(map(str, provenance["search_seeds"]))
    outcomes = Counter[str]()
    for entry in entries:
        outcomes.update(entry["outcomes"])
    return [
        f"Sampler {sampler['name']}, seed {sampler['seed']}; every proposal is trained on "
        f"seed{'s' * (len(provenance['search_seeds']) != 1)} {seeds}; feasible up to a missing "
        f"share of {provenance['tolerance']:g} in every layer.",
        f"Proposals by outcome: {outcome_text(outcomes)}.",
        *(f"{at}: its search ended early: {why}" for at, why in status["retired"].items()),
    ]


def short(field: str) -> str:
    """A searched field without its section's name."""
    return field.removeprefix("constraint.")


def _range(values: Mapping[str, Json]) -> str:
    """A range of a definition in words.

    >>> _range({"log_uniform": [1e-05, 0.01]}), _range({"choice": [1, 2]})
    ('1e-05 to 0.01, logarithmic', '1 or 2')
    """
    ((kind, ends),) = values.items()
    if kind == "choice":
        return " or ".join(map(str, ends))
    how = {
        "log_uniform": ", logarithmic",
        "log_decay": ", as decay over the run, logarithmic",
        "log_reach": ", as reach over the run, logarithmic",
    }
    return f"{ends[0]:g} to {ends[1]:g}{how.get(kind, '')}"
