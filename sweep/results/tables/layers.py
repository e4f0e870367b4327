"""Table of layers: losses, missing shares and probes of both arms. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from search_spaces.space import SearchSpace
from sweep.render.table import Column, Table, rows_of, shown_of
from sweep.results.aggregates import ARMS
from sweep.results.summary import ArmName, ArmSummary, ByLayer, SettingSummary
from sweep.results.tables.columns import HEADED, SettingLine, pair_columns


@dataclass(frozen=True)
class Line(SettingLine):
    """A layer of both arms."""

    layer: int


@dataclass(frozen=True)
class Quantity:
    """A measurement of every layer of an arm."""

    name: str  # in CSV
    values: Callable[[ArmSummary], ByLayer | None]
    header: str = ""  # of the short form; '' in CSV alone
    form: str = ".3f"

    def column(self, arm: ArmName) -> Column[Line]:
        """The column of one arm."""

        def value(line: Line) -> float | None:
            values = self.values(line.summary.arm(arm)) or ()
            return values[line.layer] if line.layer < len(values) else None

        header = self.header and f"{self.header}: {arm}"
        return Column(header, value, self.form, f"{arm}_{self.name}")


def layers_table(space: SearchSpace, summaries: Sequence[SettingSummary]) -> Table:
    """Every layer of both arms of every setting's winner or closest pair, held out, at train gamma.

    Layer 0 is what enters the first layer: the input in denoising, the embedding in text. A loss is
    that of the layer's prediction by the readout that all layers share, which the unconstrained arm
    trains on the last layer alone; a probe's is that of a readout fitted to this layer.
    """
    facts, key = space.base.facts, space.base.facts.metric.key
    lines = [Line(summary, layer) for summary in summaries for layer in range(_depth(summary))]
    measured = [Quantity("loss", lambda arm: arm.layer_losses, "loss")]
    if facts.metric.higher_is_better:  # else scores follow from the losses
        probe = "probe's loss" * any(one.arm("constrained").probe_losses for one in summaries)
        measured += [
            Quantity(key, lambda arm: arm.layer_scores),
            Quantity("probe_loss", lambda arm: arm.probe_losses, probe),
            Quantity(f"probe_{key}", lambda arm: arm.probe_scores),
        ]
    missing = Quantity("missing_share", _missing_share, "missing share", "+.2f")
    layer = Column[Line]("layer", lambda one: one.layer)
    by_arm = [quantity.column(arm) for arm in ARMS for quantity in measured]
    by_quantity = [quantity.column(arm) for quantity in (*measured, missing) for arm in ARMS]
    setting = Column[Line]("setting", lambda one: one.summary.setting)
    notes = [
        f"means over the {space.phase} seeds on {space.base.measured_on} {facts.samples} at train "
        "gamma; losses in the task's own unit; missing share: of those "
        "means, or of the median seed where that misses more.",
        "The unconstrained arm never trains its readout on inner layers: where there are probes, "
        "they show what its inner layers hold.",
    ]
    rows = rows_of([*pair_columns(space), layer, *by_arm, *map(missing.column, ARMS)], lines)
    shown = shown_of([setting, HEADED[1], layer, *by_quantity], lines)
    return Table("layers", "Both arms, layer by layer", rows, shown, notes, texts=3, headed=2)


def _missing_share(arm: ArmSummary) -> ByLayer:
    """Missing shares by layer; None before the first constrained layer."""
    return [*[None] * (arm.first_layer or 0), *(arm.missing_share or ())]


def _depth(summary: SettingSummary) -> int:
    return max(len(summary.arm(arm).layer_losses or ()) for arm in ARMS)
