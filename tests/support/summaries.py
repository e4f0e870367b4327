"""Summaries of settings with the numbers that a test is about; all others are of nobody."""

from __future__ import annotations

from collections.abc import Sequence

from sweep.confirmation.summary import ConfirmationSummary, ConfirmedSetting
from sweep.results.summary import SettingSummary
from sweep.statistics.design import Design
from trainables.plain import Json


def setting_summary(**fields: Json) -> SettingSummary:
    """A winner's setting with these fields, as its JSON has them."""
    plain: dict[str, Json] = {
        "setting": "one", "task": "video_denoising", "phase": "search", "split": "dev",
        "model": "ut", "model_variant": "distance", "winner": True, "why": None,
        "outcomes": {}, "lost": {}, "proposals": {"wanted": 4, "stored": 4, "finished": 4},
        "proposal": 0, "point": {}, "search_seeds": [0], "matched_capacity": True,
        "tolerance": 0.1, "demanded_descent": 0.4, "least_descent": 0.0, "edges": [],
        "frontier": [], "not_binding": False, "constrained": None, "unconstrained": None,
        "references": {}, "seeds": {}, **fields,
    }  # fmt: skip
    plain["gain"] = {"selection_biased": False, **plain.get("gain", {})}
    return SettingSummary.from_json(plain)


def confirmation_summary(settings: Sequence[Json] = (), **fields: Json) -> ConfirmationSummary:
    """A confirmation with these settings and fields, as its JSON has them."""
    design = Design.planned({"UT": ("a",)}, 6, smallest_effect=0.15)
    plain: dict[str, Json] = {
        "name": "tiny.confirmation", "search": "tiny", "plan": "0", "measure": "unseen_mean",
        "metric": "RMSE", "unit": "grey levels", "worst_score": "constant prediction",
        "seeds": {"planned": [], "requested": []}, "families": [], "controls": {}, "deviations": [],
        **fields,
    }  # fmt: skip
    plain["design"] = {**design.to_json(), **plain.get("design", {})}
    plain["settings"] = [one.to_json() for one in map(confirmed_setting, settings)]
    return ConfirmationSummary.from_json(plain)


def confirmed_setting(fields: Json) -> ConfirmedSetting:
    """A setting of a confirmation with these fields; those of its contrasts are made whole."""
    line: Json = {"name": "a", "family": "UT", "settings": 0, "interval": "", "codes": []}
    line |= dict.fromkeys(("p", "p_equivalent", "e_value", "d_z", "units", "question"))
    empty = {"mean": None, "low": None, "high": None, "interval": ""}
    contrasts = {
        name: {**line, "ended": empty, "per_seed": {}, "means": {}, "beside": {}, **contrast}
        for name, contrast in fields["contrasts"].items()
    }
    arm = {"wanted": 6, "mean": {}, "sd": {}, "ended": {}, "counted_as_constant": 0}
    arm |= {"certified_interval": None}
    certified = {"infeasible": 0, "undecided": 0}
    arms = {
        kind: {**arm, **one, "certified": {**certified, **one["certified"]}}
        for kind, one in fields["arms"].items()
    }
    plain = {
        "setting": "a", "family": "UT", "proposal": 0, "chosen": "winner", "point": {},
        "test_units": None, "search_gain": None, "confirmed_gain": None, "shrinkage": None,
        "equal_tries": None, "not_binding": False, **fields, "contrasts": contrasts, "arms": arms,
    }  # fmt: skip
    return ConfirmedSetting.from_json(plain)
