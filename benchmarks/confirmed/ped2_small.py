"""DUST and UT on small frames of UCSD Ped2: the search that docs/confirmed.md confirms."""

from dataclasses import replace

from search_spaces import ped2_ut
from search_spaces.catalog import setting
from search_spaces.effects.descent import half_of
from search_spaces.space import LogDecay, LogUniform, Range, Uniform

DUST = {
    "model.atoms_per_side": 12,
    "steps": 1500,
    "constraint.reference_loss": 0.8,
    "constraint.reference_unit": "constant",
    "constraint.scale": "none",
    "constraint.dual_signal": "violation",
    "constraint.dual_lr": 0.125,
    "constraint.resilience": 1e-3,
}
ALPHA: dict[str, Range] = {"constraint.alpha": Uniform(0.05, 0.35)}
DUAL: dict[str, Range] = {
    "constraint.dual_lr": LogUniform(0.02, 0.5),
    "constraint.resilience": LogDecay(0.05, 10),
}
SMALL = {"data.frame_size": 48, "data.patch_size": 8, "report_every": 300}

SPACE = replace(
    ped2_ut.SPACE,
    name="ped2_small",
    base=ped2_ut.SPACE.base.with_fields(SMALL),
    settings=tuple(
        setting(
            "ucsd_ped2",
            model,
            5,
            0.15,
            detached=detached,
            alpha=0.2,
            least_descent=half_of(0.2, 4),
            fields=fields,
            ranges=ranges,
        )
        for model, fields, ranges in (("ut", {}, ALPHA), ("dust", DUST, ALPHA | DUAL))
        for detached in (False, True)
    ),
    n_proposals=6,
)
