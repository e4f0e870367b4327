"""Many hypotheses: Holm, and settings behind the gate of their family. Pure.

A table has families (one per model and data set) of settings. *Families first*: each has a
hypothesis of its own, that the mean over its settings is 0, and settings are tested inside families
that pass. The procedure: of m families each gets the level a / m. A family passes where its p is at
most its level; then its settings are tested by Holm's procedure at that same level. A family all of
whose settings have passed too leaves its level to the families that are not through, in equal
parts (so with one setting each it is Holm's procedure over the families).

The chance of any false rejection in the whole table is at most a, whatever the dependence. Proof:
let T be the families with a true hypothesis, of their own or of a setting, t = |T|. Until the first
false rejection only families outside T can be through, so every level is at most a / t. That first
one happens in some family of T. Either its own hypothesis is true: then p <= a / t, of probability
a / t at most. Or it is false: then one of its r true settings has, at the latest when Holm's
procedure has rejected the others, p <= a / (t r), of probability at most r a / (t r) = a / t. The
sum over T is a. The families cannot have all of Holm's levels beside that: where every true one is
tested at a / t, nothing is left for settings of the others.

Source: Holm (1979); Goeman & Finos (2012), "The inheritance procedure"; the proof is that of
Goeman & Solari (2010) for these levels. Shape suffixes: F families, S settings; leading axes free.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sweep.statistics.paired import Floats


def holm(p_S: Floats) -> Floats:
    """Holm's adjusted p-values over the last axis, at most 1 each."""
    tests = p_S.shape[-1]
    order = np.argsort(p_S, axis=-1)
    steps = np.take_along_axis(p_S, order, axis=-1) * np.arange(tests, 0, -1)
    adjusted = np.empty_like(p_S)
    np.put_along_axis(adjusted, order, np.maximum.accumulate(steps, axis=-1), axis=-1)
    return np.minimum(adjusted, 1.0)


def gatekept(p_F: Floats, p_S: Floats, members: Sequence[Sequence[int]]) -> tuple[Floats, Floats]:
    """Adjusted p-values of families and of their settings: the level at which each is rejected.

    ``members`` are, per family, the places of its settings in S; every setting is in one family.
    """
    families = len(members)
    gate_S = np.empty_like(p_S)  # the level its family needs for it
    through_F = np.empty_like(p_F)  # and for all of its settings
    for f, places in enumerate(members):
        inside = np.maximum(holm(p_S[..., places]), p_F[..., f, None])
        gate_S[..., places] = inside
        through_F[..., f] = inside.max(axis=-1)
    # The level of the table at which the first j families are through, j = 0 .. F - 1.
    steps = np.sort(through_F, axis=-1) * np.arange(families, 0, -1)
    levels = np.maximum.accumulate(steps, axis=-1)
    levels = np.concatenate([np.zeros_like(levels[..., :1]), levels[..., :-1]], axis=-1)
    left = np.arange(families, 0, -1)

    def adjusted(needed: Floats) -> Floats:
        least: Floats = np.maximum(levels[..., None, :], needed[..., None] * left).min(axis=-1)
        return np.minimum(least, 1.0)

    return adjusted(p_F), adjusted(gate_S)
