"""Summaries of settings with the numbers that a test is about; all others are of nobody."""

from __future__ import annotations

from sweep.results.summary import SettingSummary
from trainables.plain import Json


def setting_summary(**fields: Json) -> SettingSummary:
    """A winner's setting with these fields, as its JSON has them."""
    plain: dict[str, Json] = {
        "setting": "one", "task": "video_denoising", "phase": "search", "split": "dev",
        "model": "ut", "model_variant": "distance", "winner": True, "why": None,
        "outcomes": {}, "lost": {}, "proposals": {"wanted": 4, "stored": 4, "finished": 4},
        "proposal": 0, "point": {}, "search_seeds": [0], "matched_capacity": True,
        "tolerance": 0.1, "demanded_descent": 0.4, "least_descent": 0.0, "edges": [],
        "frontier": [], "vacuous": False, "constrained": None, "unconstrained": None,
        "references": {}, "seeds": {}, **fields,
    }  # fmt: skip
    plain["gain"] = {"selection_biased": False, **plain.get("gain", {})}
    return SettingSummary.from_json(plain)
