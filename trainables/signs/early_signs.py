"""Health checks of a training run, from its reports: warnings, or an early end.

We call them early signs; each is a sentence that a user can act on. Every sign is a warning in the
arm's record. Those of a run that cannot come to anything end it as ``stopped``, with the sign as
the reason (``reason_to_stop``, docs/decisions/0015). What to do about each: docs/forms.md, Runs
that go wrong. A sign has the same words whenever it is seen, so that a record keeps it once.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence

from trainables.records.arm_record import TRAIN_LOSS, TRAIN_SECONDS, Report
from trainables.signs import limits
from trainables.signs.multiplier_signs import multiplier_signs
from trainables.signs.sign import Sign, WatchedRun

# Begins what a record has of a sign that no longer holds; the second in earlier records.
WENT = ("Warned at step ", "Said at step ")


class EarlySigns(WatchedRun):
    """The early signs of one run, and when they end it."""

    def warnings(self, reports: Sequence[Report]) -> list[str]:
        """The signs that the last of ``reports`` gives rise to; empty when it looks sane."""
        return [sign.text for sign in self._signs(reports)]

    def noted(self, before: Sequence[str], reports: Sequence[Report]) -> list[str]:
        """The warnings of a record after the last of ``reports``: the signs that stand, and went.

        A sign that the last report no longer shows is kept with its step and without its advice;
        where it comes back, it stands again. Other notes in ``before`` stay.
        """
        now = self.warnings(reports)
        stood = self.warnings(reports[:-1]) if before and reports[1:] else []
        went = {*stood} - {*now}
        back = tuple(f': "{_first_sentence(text)}"' for text in now)
        kept = [_went(text, reports) if text in went else text for text in before]
        kept = [text for text in kept if not (text.startswith(WENT) and text.endswith(back))]
        return [*kept, *(text for text in now if text not in kept)]

    def reason_to_stop(self, reports: Sequence[Report]) -> str:
        """The reason to end a run after the last of ``reports``, with advice; empty: train on.

        A sign ends a run when two successive reports show it and what is wrong has not become
        better in between, after ``SETTLED`` of the steps and never at the last report. One about a
        constraint needs ``HALFWAY`` of the steps that follow the warm-up, and a report that misses
        more than the tolerance: a run that meets its constraints is never ended for how its
        multipliers look.
        """
        config = self.config
        if not config.early_stop or len(reports) < 2 or reports[-1].step >= config.steps:
            return ""
        before = {sign.text: sign for sign in self._signs(reports[:-1])}
        for sign in self._signs(reports):
            stays = (
                sign.text in before and sign.badness > limits.IMPROVING * before[sign.text].badness
            )
            if sign.ends and stays and self._is_late_enough(sign, reports[-1]):
                return (
                    f"ended at step {reports[-1].step} of {config.steps}: {sign.text} "
                    "With early_stop=false such arms train to their end."
                )
        return ""

    def _is_late_enough(self, sign: Sign, report: Report) -> bool:
        if not sign.of_constraint:
            # steps that the evaluated weights look back
            averaged = 1.0 / (1.0 - self.config.weight_ema)
            return report.step >= limits.SETTLED * self.config.steps + averaged - 1.0
        is_infeasible = max(report.layers["missing_shares"]) > self.tolerance
        return is_infeasible and self.is_past_half(report)

    def _signs(self, reports: Sequence[Report]) -> list[Sign]:
        report, constraint = reports[-1], self.config.constraint
        has_identity = self.config.facts.has_identity
        signs = [*(_denoiser(self, report) if has_identity else _classifier(self, report))]
        signs += [*_flat(self, reports), *_slowed(reports), *_exactly_zero(self, report)]
        if not has_identity:
            signs += _scale_alone(reports)
        if constraint is not None and not constraint.is_control:
            signs += multiplier_signs(self, reports)
        return signs


def _went(text: str, reports: Sequence[Report]) -> str:
    """A sign of the report before the last, in the past."""
    before, now = (report.step for report in reports[-2:])
    return f'{WENT[0]}{before} and no longer true at step {now}: "{_first_sentence(text)}"'


def _first_sentence(text: str) -> str:
    """The observation of a sign, without its advice."""
    return text.partition(". ")[0].rstrip(".") + "."


def _denoiser(run: WatchedRun, report: Report) -> Iterator[Sign]:
    config, loss = run.config, report.layers["losses"][-1]
    identity = run.scales.identity_loss / run.scales.constant_loss
    if loss > 1.0:
        cause = "the output shows less than a grey image. Lower primal_lr, or train longer."
        if config.model.spec.ends_in_relu:
            cause = "the output may be blank (dead ReLU). Lower primal_lr or choose another "
            cause += "model.variant."
        text = f"The held-out loss is above the constant prediction's: {cause}"
        yield Sign(text, badness=loss, ends=True)
    elif config.train_gamma > 0 and loss >= identity and run.is_settled(report):
        how = "is not below the unchanged input's after a quarter of the steps. Train longer or "
        how += "raise primal_lr."
        if loss > limits.ABOUT_EQUAL * identity:
            how = "is above the unchanged input's after a quarter of the steps. Lower primal_lr, "
            how += "or train longer."
        yield Sign(f"The held-out loss {how}", badness=loss)


def _classifier(run: WatchedRun, report: Report) -> Iterator[Sign]:
    """A cross entropy above that of the label frequencies; it may yet be right in most answers."""
    loss = report.layers["losses"][-1]
    if loss >= 1.0 and run.is_settled(report):
        yield Sign(
            "The held-out loss is not below the constant prediction's after a quarter of the "
            "steps: nothing is learnt yet, or wrong answers are given with certainty. Lower "
            "primal_lr, or train longer.",
            badness=loss,
        )


def _flat(run: WatchedRun, reports: Sequence[Report]) -> Iterator[Sign]:
    """The training loss of the last layer is that of the first report in all others, to 1 %."""
    losses = [r.scalars[TRAIN_LOSS] for r in reports if TRAIN_LOSS in r.scalars]
    if len(losses) < 3 or losses[0] == 0 or not run.is_settled(reports[-1]):
        return
    if all(abs(loss / losses[0] - 1.0) < limits.FLAT for loss in losses):  # never with a NaN
        yield Sign(
            "The training loss has not moved since the first report: nothing is learnt. Raise "
            "primal_lr, or look at the data.",
            badness=losses[-1],
        )


def _slowed(reports: Sequence[Report]) -> Iterator[Sign]:
    """Two intervals in a row at less than half the median speed of those before, in training alone.

    Short intervals say nothing: one of ``LEAST_SECONDS`` outlasts another program's start.
    """
    timed = [(r.step, r.scalars[TRAIN_SECONDS]) for r in reports if TRAIN_SECONDS in r.scalars]
    passed = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(timed)]
    if len(passed) < 5 or min(seconds for _, seconds in passed[-2:]) < limits.LEAST_SECONDS:
        return
    speeds = [steps / max(seconds, 1e-9) for steps, seconds in passed]
    usual = statistics.median(speeds[:-2])
    if max(speeds[-2:]) < limits.SLOW * usual:
        yield Sign(
            "Training runs at less than half its speed (throughput halved): another program may "
            "use the machine, or memory is short. Look at it with nvidia-smi or top.",
            badness=usual / max(speeds[-1], 1e-9),
        )


def _exactly_zero(run: WatchedRun, report: Report) -> Iterator[Sign]:
    """A held-out loss, or an accuracy, of exactly 0; at train_gamma 0 an identity has that loss."""
    config, accuracies = run.config, report.layers.get("accuracies", ())
    is_noisy = config.train_gamma > 0 or not config.facts.has_identity
    has_no_loss = is_noisy and report.layers["losses"][-1] == 0.0
    if has_no_loss or (accuracies and accuracies[-1] == 0.0):
        yield Sign(
            "An evaluation is exactly 0: it measured nothing, targets stand in the input, or "
            "labels are mixed up. Check the data.",
            badness=0.0,
        )


def _scale_alone(reports: Sequence[Report]) -> Iterator[Sign]:
    """A classifier's layer whose hidden norm is ``GROWN`` times what it was, and its loss lower.

    A cross entropy falls by the scale of the logits alone once most answers are right, and through
    a normalisation it leaves the scale of hidden states free (arXiv 2606.24898). In denoising the
    target has a scale, and so has the prediction. Layer 0 is the input.
    """
    first, last = reports[0].layers, reports[-1].layers
    if "hidden_norms" not in first or "hidden_norms" not in last:  # of before they were measured
        return
    for layer in range(1, len(last["losses"])):
        has_fallen = last["losses"][layer] < first["losses"][layer]
        norm = last["hidden_norms"][layer]
        if has_fallen and norm > limits.GROWN * first["hidden_norms"][layer]:
            yield Sign(
                f"The hidden state of layer {layer} has become more than {limits.GROWN:g} times as "
                "large while its loss fell: part of the descent may be scale alone. Compare the "
                "layer's accuracy, and set weight_decay if that does not rise.",
                badness=norm,
            )
