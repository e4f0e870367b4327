"""Page of a search: what was asked and found, how sure it is, all numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from sweep.confirmation.plan import UNCONSTRAINED
from sweep.confirmation.words import sentences
from sweep.render.table import NOTHING, YES_NO, Table, number
from sweep.report.pages import markup
from sweep.report.pages.markup import Picture
from sweep.results.findings import findings
from sweep.results.names import point_text
from sweep.results.status import time_text
from sweep.results.verdict_text import certified_over, infeasible_seeds, verdict_lines
from sweep.study.selection import outcome_text
from trainables.plain import Json
from trainables.registry.lookup import facts_of

_FEW = 20  # arms whose reason is on the page


def page(
    status: Mapping[str, Json],
    entries: Sequence[Mapping[str, Json]],
    tables: Iterable[Table],
    figures: Mapping[str, Mapping[str, Picture]],
    provenance: Mapping[str, Json],
    commands: Mapping[str, Mapping[str, str]],
    confirmed: Sequence[Mapping[str, Json]],
) -> str:
    """The page as a text.

    Args:
        status: that of ``status_entry``, and of the sweep ``name``, ``space`` and ``summary``, and
            ``notes``: sentences on what the page leaves out.
        entries: those of ``best_entries``; a part each.
        tables: below the settings, in this order.
        figures: pages by key, by the key of ``FIGURES``.
        provenance: what ``provenance.manifest`` says.
        commands: what to type by what it does: "next", "again", and by setting.
        confirmed: entries of its confirmations.
    """
    name = str(status["name"])
    parts = "".join(_setting(entry, commands.get(entry["setting"], {})) for entry in entries)
    asked, tried = _asked(provenance, entries)
    answer = {"Question": [asked], "Answer": [escape(text) for text in findings(entries)]}
    rest = {
        "How sure": [tried, *_believed(status, entries), *_confirmed(confirmed)],
        "Next": [markup.command(what, said) for what, said in commands["next"].items()],
    }
    overview = markup.table(_overview(entries), level=2, linked=[e["setting"] for e in entries])
    return markup.document(
        f"{name}: report",
        markup.lead(name, str(status["summary"]), answer, overview * bool(entries), rest),
        {
            "Confirmed": "".join(map(_confirmation, confirmed)),
            "Settings": parts,
            "Figures": markup.figures(figures)
            or "<p>Nothing is measured yet that a figure could show.</p>",
            "Tables": "".join(map(markup.table, tables)),
            "Searched": _searched(status, provenance, entries),
            "Again": "".join(markup.command(*one) for one in commands["again"].items()),
            "Provenance": provenance_part(provenance),
        },
    )


# --- first screen ---------------------------------------------------------------------------------


def _asked(
    provenance: Mapping[str, Json], entries: Sequence[Mapping[str, Json]]
) -> tuple[str, str]:
    """The question, and how much was tried to answer it."""
    space = provenance["definition"]
    seeds, count = len(space["search_seeds"]), len(entries)
    wanted = sorted({entry["proposals"]["wanted"] for entry in entries})
    tries = f"{wanted[0]} to {wanted[-1]}" if len(wanted) > 1 else f"{wanted[0]}" if wanted else "0"
    return (
        "Does a network that must lower its loss layer by layer do better than plain training?",
        f"{count} setting{'s' * (count != 1)}, {tries} proposals each, every one on {seeds} "
        f"seed{'s' * (seeds != 1)} as a pair that differs in nothing but the constraint.",
    )


def _believed(status: Mapping[str, Json], entries: Sequence[Mapping[str, Json]]) -> Iterator[str]:
    """How far the sweep is, how sure its verdicts are, and what selection did to its numbers."""
    arms = status["arms"]
    ends = ", ".join(f"{count} {how}" for how, count in status["statuses"].items())
    state = str(status["state"]).capitalize()
    done = f"{arms['final']} of {arms['wanted']} arms are final{f' ({ends})' * bool(ends)}."
    yield f"<b>{escape(state)}</b>: {escape(done)}"
    if status["state"] not in ("finished", "failed"):
        training = f", {arms['training']} train now" * bool(arms["training"])
        yield markup.warning(
            f"This page is of a sweep that is not at its end{training}: winners can still change."
        )
    winners = [entry for entry in entries if entry["winner"]]
    sure = sum((entry["constrained"] or {}).get("certificate") == "feasible" for entry in winners)
    if winners:
        others = "; of the others more units could turn the verdict" * (sure < len(winners))
        yield (
            f"{sure} of {len(winners)} winner{'s' * (len(winners) != 1)} "
            f"{'is' if sure == 1 else 'are'} certified feasible, by 95 % bounds over the held-out "
            f"units{certified_over(winners)}{others}."
        )
    for entry in winners:
        if seeds := infeasible_seeds(entry):
            yield markup.warning(
                f"The winner of {escape(entry['setting'])} is infeasible on {len(seeds)} of its "
                f"{len(entry['search_seeds'])} seeds: the verdict is of their mean."
            )
    if any(entry["gain"].get("selection_biased") for entry in entries):
        yield markup.warning(
            "Gains are of pairs that the search selected by these very scores: they "
            "flatter, and are no result before fresh seeds confirm them."
        )
    yield from (escape(note) for note in status["notes"])


def _confirmed(confirmed: Sequence[Mapping[str, Json]]) -> Iterator[str]:
    if confirmed:
        names = ", ".join(escape(entry["name"]) for entry in confirmed)
        yield f'On fresh seeds and the test split: <a href="#confirmed">{names}</a>.'


def _confirmation(entry: Mapping[str, Json]) -> str:
    said = [
        f"Plan {entry['plan']}; {whole_seeds(entry)} of {len(entry['seeds']['planned'])} planned "
        "seeds count.",
        *sentences(entry),
        *(f"Departs from the plan: {text}" for text in entry["deviations"]),
    ]
    return f"<h3>{escape(entry['name'])}</h3>{markup.bullets(said)}"


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


def _setting(entry: Mapping[str, Json], commands: Mapping[str, str]) -> str:
    name = escape(entry["setting"])
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
        lines += [f"{line[0].upper()}{line[1:]}." for line in verdict_lines(entry)]
    if entry["vacuous"]:
        lines.append(
            "Not binding: plain training meets the constraint by itself, so the pair says nothing "
            "about constraining."
        )
    again = "".join(markup.command(*one) for one in commands.items())
    return (
        f'<section aria-labelledby="{name}"><h3 id="{name}">{name}</h3>'
        f"<p><span class=tag>{escape(kind)}</span></p>{_arms(entry)}{markup.bullets(lines)}"
        f"{markup.details('Train it again', again)}</section>"
    )


def _arms(entry: Mapping[str, Json]) -> str:
    """Both arms and the gain."""
    if entry["constrained"] is None and entry["unconstrained"] is None:
        return ""
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
    head = "".join(f"<th scope=col{' class=w' * (not h)}>{escape(h)}</th>" for h in heads)
    body = "".join(
        f"<tr><th scope=row class=w>{escape(first)}</th>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    return (
        "<div class=wide tabindex=0><table>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _numbers(values: Mapping[str, Json], form: str, of_loss: str) -> list[str]:
    scores = [number(values.get(key), form) for key in ("seen_mean", "unseen_mean")]
    return [*scores, number(values.get("held_out_loss"), of_loss)]


# --- search and provenance ------------------------------------------------------------------------


def _searched(
    status: Mapping[str, Json],
    provenance: Mapping[str, Json],
    entries: Sequence[Mapping[str, Json]],
) -> str:
    """Ranges, sampler, seeds; what became of the proposals; what failed."""
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
    sampler, seeds = provenance["sampler"], ", ".join(map(str, provenance["search_seeds"]))
    notes = [
        f"Sampler {sampler['name']}, seed {sampler['seed']}; every proposal is trained on "
        f"seed{'s' * (len(provenance['search_seeds']) != 1)} {seeds}; feasible up to a missing "
        f"share of {provenance['tolerance']:g} in every layer.",
    ]
    outcomes: dict[str, int] = {}
    for entry in entries:
        for outcome, count in entry["outcomes"].items():
            outcomes[outcome] = outcomes.get(outcome, 0) + count
    notes.append(f"Proposals by outcome: {outcome_text(outcomes)}.")
    notes += [f"{at}: its search ended early: {why}" for at, why in status["retired"].items()]
    failed = [f"{f['setting']}, {f['signature']}: {f['reason']}" for f in status["failures"]]
    signs = [f"{w['setting']}, {w['signature']}: {w['warning']}" for w in status["warnings"]]
    table = Table("searched", "What was searched", [], shown, [], texts=3)
    return (
        markup.table(table) * bool(ranges)
        + markup.bullets(notes)
        + markup.details(f"Arms that ended early ({len(failed)})", markup.bullets(failed, few=_FEW))
        + markup.details(f"Early signs of bad runs ({len(signs)})", markup.bullets(signs, few=_FEW))
    )


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


def provenance_part(found: Mapping[str, Json]) -> str:
    """Code, machines and data of the arms in words; everything as JSON."""
    machines = []
    for environment in found["environments"]:
        packages = environment.get("packages") or {}
        versions = ", ".join(f"{n} {v}" for n, v in sorted(packages.items()))
        rest = {k: v for k, v in environment.items() if k != "packages" and v is not None}
        said = ", ".join(f"{k} {_plain(v)}" for k, v in sorted(rest.items()))
        machines += ["; ".join(filter(None, (said, versions)))] * bool(environment)
    data = [
        f"{one['name']}, fingerprint {one['fingerprint'] or 'unknown'}" for one in found["data"]
    ]
    arms = found["arms"]
    return (
        f"<p>Training version {found['training_version']}; {arms['final']} arms took "
        f"{time_text(arms['wall_s'])} in all. Data: {escape('; '.join(data) or 'none yet')}."
        f"</p>{'<p>Where they were trained:</p>' * bool(machines)}{markup.bullets(machines)}"
        f"{markup.details('Everything, as JSON', markup.as_json(found), printed=False)}"
    )


def _plain(value: Json) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
