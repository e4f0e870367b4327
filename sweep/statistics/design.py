"""Design of a confirmation: families, error, and when seeds may be looked at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

from trainables.errors import require
from trainables.plain import LATER, StoredPlain

Outcome = Literal["undecided", "better", "worse", "equivalent"]
Rule = Literal["looks", "any_time", "fixed"]
EARLY_LOOKS = (10,)  # before the last one
SPENDING = (0.3, 0.7)  # fractions of the error, of the first looks and the last


@dataclass(frozen=True)
class Design(StoredPlain):
    """Design of a confirmation: hypotheses, error, and numbers of seeds to test at.

    Rules: ``fixed`` tests once, at the one look; ``looks`` at each, which spends its share of the
    error (their sum is all of it: a union bound, so any dependence between looks is allowed);
    ``any_time`` after every seed, by e-processes. With ``sign_flips`` a p is the t test's or that
    of sign flips, whichever is larger; with ``any_time`` the t e-process or its bets on signs.
    """

    families: Mapping[str, tuple[str, ...]]  # the names of each one's settings
    rule: Rule = "looks"
    looks: tuple[int, ...] = (*EARLY_LOOKS, 20)  # numbers of seeds; none with any_time
    spending: tuple[float, ...] = SPENDING  # one share per look, in all 1
    error: float = 0.05  # of the whole table
    smallest_effect: float | None = None  # of interest, in the score's unit; None: no equivalence
    # Have to agree; designs of before, which keep their rule, lack it.
    sign_flips: bool = field(default=False, metadata=LATER)

    def __post_init__(self) -> None:
        names = [name for settings in self.families.values() for name in settings]
        require(
            bool(names) and all(self.families.values()) and len(set(names)) == len(names),
            "families", self.families, "at least one, with settings that are in no other family",
        )  # fmt: skip
        rules = get_args(Rule)
        require(self.rule in rules, "rule", self.rule, f"one of {', '.join(rules)}")
        require(0 < self.error < 0.5, "error", self.error, "above 0 and below 0.5")
        effect = self.smallest_effect
        ok = effect is None or (effect > 0 and math.isfinite(effect))
        require(ok, "smallest_effect", effect, "above 0, or None")
        looks = self.looks
        rising = list(looks) == sorted(set(looks)) and min(looks, default=2) >= 2
        count = {"any_time": len(looks) == 0, "fixed": len(looks) == 1}.get(self.rule, bool(looks))
        require(
            rising and count, "looks", looks,
            "rising numbers of seeds from 2: none with any_time, one with fixed",
        )  # fmt: skip
        require(
            len(self.spending) == len(looks)
            and all(share > 0 for share in self.spending)
            and (not looks or math.isclose(math.fsum(self.spending), 1.0)),
            "spending", self.spending, "one share above 0 per look, in all 1",
        )  # fmt: skip

    @classmethod
    def planned(
        cls,
        families: Mapping[str, tuple[str, ...]],
        seeds: int,
        *,
        rule: Rule = "looks",
        error: float = 0.05,
        smallest_effect: float | None = None,
    ) -> Design:
        """The design for so many seeds: looks at 10 and at the last, which spend 30 and 70 %.

        Up to ten seeds there is one look, which spends the whole error.

        >>> design = Design.planned({"UT": ("L=4",)}, seeds=20)
        >>> design.looks, design.spending
        ((10, 20), (0.3, 0.7))
        """
        require(seeds >= 2, "seeds", seeds, "at least 2", "one seed has no spread to judge by.")
        early = [look for look in EARLY_LOOKS if look < seeds]
        looks = {"fixed": (seeds,), "any_time": ()}.get(rule, (*early, seeds))
        shares = SPENDING[-len(looks) :] if looks else ()
        return cls(
            families={name: tuple(settings) for name, settings in families.items()},
            rule=rule,
            looks=looks,
            spending=tuple(share / math.fsum(shares) for share in shares),
            error=error,
            smallest_effect=smallest_effect,
            sign_flips=True,
        )

    @cached_property
    def settings(self) -> tuple[str, ...]:
        """All settings, family by family: the order of the axis S."""
        return tuple(name for settings in self.families.values() for name in settings)

    @cached_property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """Per family, the places of its settings in ``settings``."""
        place = {name: i for i, name in enumerate(self.settings)}
        return tuple(tuple(place[name] for name in names) for names in self.families.values())

    def stages(self, seeds: int) -> tuple[tuple[int, float], ...]:
        """Stages at which ``seeds`` seeds are tested: with their parts of the error."""
        if self.rule == "any_time":
            return tuple((n, 1.0) for n in range(2, seeds + 1))
        return tuple(
            (n, share)
            for n, share in zip(self.looks, self.spending, strict=True)
            if n <= seeds
        )  # fmt: skip
