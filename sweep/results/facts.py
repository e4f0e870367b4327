"""Facts of a sweep: every number of its pairs, one a row. Pure.

Tables, frames and figures start from them. One row per setting, proposal, arm, seed, metric, shift
and severity, layer. Nothing stands where a column does not apply: ``layer`` where a number is of
the model's output, ``shift`` and ``severity`` where it is of the whole range of gammas or of
training, ``seed`` where the ``arm`` is a reference, which needs no training. ``shift`` is
``gaussian`` for noise alone; its severity is the test gamma.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sweep.render.table import Row
from sweep.results.aggregates import COSTS, area, pair_summary
from sweep.results.provenance import codes_of
from sweep.results.summary import NO_ARM, ArmSummary, Gain
from sweep.results.sweep_view import SettingView, SweepView
from sweep.results.tables.columns import GAUSSIAN
from sweep.study.feasibility import Judgement
from sweep.study.pairs import Pair, ReadRecord, pairs_of
from sweep.study.proposals import StoredProposal
from trainables.plain import finite
from trainables.records.arm_record import ArmRecord, Outcome, first_layer
from trainables.records.evaluation import Evaluation
from trainables.records.parallel_reads import few_at_once

Cell = tuple[str, str | None, float | None, int | None, float]  # the columns behind ``seed``
Judged = tuple[ArmRecord | None, Judgement | None]


class Fact(NamedTuple):
    """One number."""

    setting: str
    proposal: int | None  # None: of the unconstrained arms of a setting without a finished pair
    arm: str
    seed: int | None
    metric: str
    shift: str | None
    severity: float | None
    layer: int | None
    value: float


@dataclass(frozen=True)
class Facts:
    """Numbers of every pair of a sweep, and every proposal on every search seed."""

    numbers: list[Fact]
    proposals: list[Row]  # of proposals.csv


def shown_facts(one: SettingView) -> Iterator[Fact]:
    """Both arms of a setting's winner, or of its closest pair, on every seed; references.

    Without a finished pair those of the unconstrained arms that there are.
    """
    shown = one.chosen.shown
    if shown is not None:
        return pair_facts(one, shown.number, shown.pairs)
    return _arm_facts(one, None, [(record, None) for record in one.baselines.values()])


def read_facts(view: SweepView, read: ReadRecord, metrics: Collection[str] = ()) -> Facts:
    """Facts of all pairs, each record read once, many at a time.

    Of these metrics alone: all numbers of thousands of pairs do not fit into memory.
    """
    facts, seeds = Facts([], []), view.definition.space.search_seeds
    for one in view.settings:
        outcomes = {result.number: result.outcome for result in one.results}
        by_seed: dict[int, list[Row]] = {seed: [] for seed in seeds}
        for proposal, arms in read_pairs(view, one, read):
            outcome = outcomes.get(proposal.number)
            for (seed, rows), arm in zip(by_seed.items(), arms, strict=True):
                rows.append(_row(one, proposal, seed, arm, outcome))
            pairs = [arm.pair for arm in arms] if metrics else []
            numbers = pair_facts(one, proposal.number, pairs)
            facts.numbers.extend(fact for fact in numbers if fact.metric in metrics)
        facts.proposals.extend(itertools.chain(*by_seed.values()))
    return facts


class PairedArm(NamedTuple):
    """A constrained arm as it was read."""

    signature: str
    record: ArmRecord | None
    baseline: ArmRecord | None
    pair: Pair | None  # None until the arm is final


def read_pairs(
    view: SweepView, one: SettingView, read: ReadRecord
) -> Iterator[tuple[StoredProposal, list[PairedArm]]]:
    """Proposals of a setting, with their arms in the order of the search seeds."""
    plain, tolerance = one.baselines, view.definition.space.tolerance
    wanted = {proposal.number for proposal in one.proposals}
    records = few_at_once(read, [a.signature for a in one.arms if a.proposal in wanted])
    for proposal in one.proposals:  # in the order of their arms
        ours = dict(itertools.islice(records, len(plain)))
        both = zip(ours, plain, strict=True)
        pairs = pairs_of(both, (ours | plain).get, tolerance, proposal.point)
        yield proposal, list(map(PairedArm, ours, ours.values(), plain.values(), pairs))


def _row(
    one: SettingView, proposal: StoredProposal, seed: int, arm: PairedArm, outcome: Outcome | None
) -> Row:
    """Point, how each arm ended, and what both arms of the pair came to."""
    number, winner, record, pair = proposal.number, one.chosen.winner, arm.record, arm.pair
    codes = codes_of(record for record in (arm.record, arm.baseline) if record is not None)
    row: Row = {
        "setting": one.setting.name,
        "proposal": number,
        **({"point": one.setting.point_name(number)} if one.setting.points else {}),
        "seed": seed,
        **{name.removeprefix("constraint."): value for name, value in proposal.point.items()},
        "outcome": outcome,
        "winner": winner is not None and winner.number == number,
        "signature": arm.signature,
        "status": record.status if record else None,
        "codes": "; ".join(codes) or None,
    }
    if record is None or pair is None:
        return row
    summary = pair_summary([pair], pair, {}, selected=False)
    ours, plain = summary.constrained or NO_ARM, summary.unconstrained or NO_ARM
    mean = f"mean_{record.config.facts.metric.key}"
    row |= {
        "reason": record.reason or None,
        "outcome_of_seed": pair.outcome,
        "not_binding": pair.is_not_binding,
        **verdict_columns(ours),
        **score_columns("constrained_", mean, ours),
        **score_columns("unconstrained_", mean, plain),
        f"gain_{mean}": summary.gain.mean_over_gammas,
    }
    return finite(row)


def score_columns(prefix: str, mean: str, values: ArmSummary | Gain) -> Row:
    """Scores of an arm or a gain, the ``mean`` of the metric first."""
    return {
        f"{prefix}{mean}": values.mean_over_gammas,
        f"{prefix}objective": values.objective,
        f"{prefix}ood_auc": values.ood_auc,
        f"{prefix}seen_mean": values.seen_mean,
        f"{prefix}unseen_mean": values.unseen_mean,
        f"{prefix}held_out_loss": values.held_out_loss,
    }


def verdict_columns(arm: ArmSummary, prefix: str = "") -> Row:
    """The verdict on an arm."""
    return {
        f"{prefix}worst_missing_share": arm.worst_missing_share,
        f"{prefix}worst_layer": arm.worst_layer,
        f"{prefix}certificate": arm.certificate,
        f"{prefix}beats_trivial": arm.beats_trivial,
    }


# --- numbers of pairs -----------------------------------------------------------------------------


def pair_facts(one: SettingView, number: int, pairs: Iterable[Pair | None]) -> Iterator[Fact]:
    """Numbers of both arms of a proposal's pairs, and of the references."""
    arms: list[Judged] = []
    for pair in filter(None, pairs):
        arms.append((pair.constrained, pair.judgement))
        arms.append((pair.unconstrained, pair.unconstrained_judgement))
    return _arm_facts(one, number, arms)


def _arm_facts(one: SettingView, number: int | None, arms: Iterable[Judged]) -> Iterator[Fact]:
    """Numbers of arms, and of the references, which are alike beside all of them."""
    name = one.setting.name
    measured = [(r, j, r.evaluation) for r, j in arms if r and r.evaluation]
    for record, judgement, evaluation in measured:
        for cell in _cells(record, evaluation, judgement):
            yield Fact(name, number, record.config.arm, record.config.seed, *cell)
    for record, _, evaluation in measured[:1]:
        for reference in evaluation.references:
            for cell in _reference_cells(record, evaluation, reference):
                yield Fact(name, number, reference, None, *cell)


def _cells(
    record: ArmRecord, evaluation: Evaluation, judgement: Judgement | None
) -> Iterator[Cell]:
    key, gamma = record.config.facts.metric.key, record.config.train_gamma
    for name in ("objective", "mean_over_gammas", "ood_auc"):
        yield name, None, None, None, getattr(evaluation, name)
    last = record.reports[-1].scalars if record.reports else {}
    yield from (
        (name, None, None, None, last[scalar]) for name, scalar in COSTS.items() if scalar in last
    )
    yield from _scores(key, {GAUSSIAN: evaluation.scores, **evaluation.shift_scores})

    by_gamma = {
        "loss": evaluation.layer_losses_by_gamma,
        f"layer_{key}": evaluation.layer_scores_by_gamma,
    }
    for name, rows in by_gamma.items():  # draw 0
        for g, values in rows.items():
            yield from _by_layer(name, values, float(g))
    for shift, losses in evaluation.shift_layer_losses.items():
        for severity, values in losses.items():
            yield from _by_layer("loss", values, float(severity), shift=shift)
    at_train_gamma: dict[str, Sequence[float]] = {  # all draws
        "held_out_loss": evaluation.held_out_losses(),
        "training_loss": evaluation.training_losses(),
        "probe_loss": evaluation.probe_losses,
        f"probe_{key}": evaluation.probe_scores,
        "multiplier": evaluation.multipliers,
        "descent_fraction": evaluation.descent_fraction,
        "hidden_norm": evaluation.hidden_norms,
        "violation_noise": record.reports[-1].layers.get("violation_noise", ()),
    }
    if judgement is not None:
        at_train_gamma |= {
            "missing_share": judgement.held_out,
            "missing_share_training": judgement.training,
            "missing_share_relaxed": judgement.relaxed or (),
        }
    quantiles = list(zip(*evaluation.descent_ratio_quantiles, strict=True))  # [quantile][layer]
    at_train_gamma |= {
        f"descent_ratio_q{100 * i // (len(quantiles) - 1):02d}": quantile
        for i, quantile in enumerate(quantiles)
    }
    layers = len(evaluation.dev_losses[0])
    for name, of_layers in at_train_gamma.items():
        yield from _by_layer(name, of_layers, gamma, first=first_layer(layers, len(of_layers)))


def _scores(key: str, by_shift: Mapping[str, Mapping[str, float]]) -> Iterator[Cell]:
    for shift, scores in by_shift.items():
        yield from ((key, shift, float(s), None, score) for s, score in scores.items())


def _by_layer(
    name: str, values: Sequence[float], severity: float, *, shift: str = GAUSSIAN, first: int = 0
) -> Iterator[Cell]:
    """One cell a layer, from layer ``first`` on."""
    return ((name, shift, severity, layer, v) for layer, v in zip(itertools.count(first), values))


def _reference_cells(record: ArmRecord, evaluation: Evaluation, name: str) -> Iterator[Cell]:
    key, scores = record.config.facts.metric.key, evaluation.references[name]
    yield "mean_over_gammas", None, None, None, sum(scores.values()) / len(scores)
    yield "ood_auc", None, None, None, area(scores)
    yield from _scores(key, {GAUSSIAN: scores, **evaluation.shift_references.get(name, {})})
    if name in evaluation.reference_losses:
        loss = evaluation.reference_losses[name]
        yield "held_out_loss", GAUSSIAN, record.config.train_gamma, None, loss
