"""UT on small frames of UCSD Ped2 under shifts: a search that its replications repeat."""

from dataclasses import replace

import ped2_small  # type: ignore[import-not-found]  # a space file finds what lies beside it

SHIFTS = ("blur", "brightness", "compression", "occlusion", "salt_and_pepper", "frame_drop")

SPACE = replace(
    ped2_small.SPACE,
    name="ped2_shifts",
    summary="UT on small frames of UCSD Ped2, scored under shifts",
    base=ped2_small.SPACE.base.with_fields({"shifts": SHIFTS, "eval_draws": 1}),
    settings=tuple(s for s in ped2_small.SPACE.settings if "-ut-" in s.name),
    search_seeds=(0,),
)
