"""Marks of runs in MLflow: names, colours, and what became of an arm. Pure.

An arm's run gets a name and a colour when it is made. Which proposal wins is known at the end of a
sweep, and may change when it is continued: then runs are named and coloured anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from search_spaces.settings import short_names
from search_spaces.space import SearchSpace
from sweep.study.definition import Definition
from sweep.study.proposals import ProposalOutcome
from sweep.study.selection import SettingResult, beaten_by
from trainables.plain import Plain

COLOUR = "mlflow.runColor"  # a run's tag
# What else a run is marked with: words, and "yes" for both arms of the pair that a setting shows.
VERDICT, IN_PAIR = "verdict", "in_shown_pair"
OF_PROPOSAL = "proposal_outcome"  # over its seeds; an arm's own is the tag ``outcome``
WINNER, CLOSEST, PLAIN = "winner", "closest, no winner", "plain training"

# Of Okabe and Ito, told apart by colour-blind people too: one for each setting.
HUES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREYS = ("#404040", "#808080", "#B0B0B0")  # plain arms
PALE = 0.6  # how far to white: proposals that are not shown


def setting_labels(settings: Sequence[str]) -> dict[str, str]:
    """Ends of runs' names, by setting: the part that tells settings apart; '' for a single one."""
    return short_names(settings) if len(settings) > 1 else dict.fromkeys(settings, "")


def run_name(label: str, setting: str, proposal: int | None, seed: int, verdict: str = "") -> str:
    """Name of a run: what varies comes first, because charts cut after some 20 characters.

    >>> run_name("L5-g0.15-detached", "ped2-ut-L5-g0.15-detached", 3, 0, "winner")
    'WIN p3 s0 L5-g0.15-detached'
    >>> run_name("", "ped2-ut-L5-g0.15", None, 0)
    'plain s0 ped2-ut-L5-g0.15'
    """
    who = "plain" if proposal is None else f"p{proposal}"
    mark = {WINNER: "WIN ", CLOSEST: "CLOSEST "}.get(verdict, "")
    return f"{mark}{who} s{seed} {label or setting}"


def colour(place: int, proposal: int | None, verdict: str = "") -> str:
    """Colour of a run: its setting's hue, strong where it is shown; grey without constraint.

    >>> colour(0, 3, "winner"), colour(0, 4), colour(0, None)
    ('#0072B2', '#99C7E0', '#404040')
    """
    if proposal is None:
        return GREYS[place % len(GREYS)]
    strong = HUES[place % len(HUES)]
    if verdict in (WINNER, CLOSEST):
        return strong
    parts = (int(strong[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * PALE):02X}" for part in parts)


@dataclass(frozen=True)
class ArmTags(Plain):
    """The tags of an arm's run that its marks follow from."""

    setting: str
    signature: str
    seed: str
    outcome: str
    proposal: str | None = None


@dataclass(frozen=True)
class Verdicts:
    """Verdicts of a sweep on its arms, when they are all seen together."""

    settings: Sequence[str]  # in the order of the sweep
    by_signature: Mapping[str, str] = field(default_factory=dict)
    outcomes: Mapping[str, str] = field(default_factory=dict)  # of their proposals, by signature
    shown: Collection[str] = ()  # signatures of both arms of each setting's winner, or closest pair

    @classmethod
    def from_settings(
        cls,
        space: SearchSpace,
        settings: Mapping[str, tuple[SettingResult, Sequence[ProposalOutcome]]],
    ) -> Verdicts:
        """Derive the verdicts from each setting's choice and its proposals.

        A confirmation chooses nothing: its plan names the points, and all are shown.
        """
        verdicts: dict[str, str] = {}
        outcomes: dict[str, str] = {}
        shown: set[str] = set()
        for name, (chosen, judged) in settings.items():
            for one in judged:
                verdict = _verdict(one, chosen)
                if space.phase == "confirmation":
                    verdict = space.setting(name).point_name(one.number) or verdict
                    shown.update(one.signatures)
                # an arm that settings share is a winner if it is one in any of them
                for signature in one.signatures:
                    outcomes[signature] = one.outcome
                    if verdicts.get(signature) != WINNER:
                        verdicts[signature] = verdict
            for pair in chosen.shown.pairs if chosen.shown else ():
                both = (pair.constrained, pair.unconstrained)
                shown |= {arm.signature for arm in both if arm is not None}
        return cls(tuple(settings), verdicts, outcomes, shown)

    def marks(self, tags: ArmTags) -> tuple[str, dict[str, str]]:
        """Name of an arm's run, and the tags that mark it, from the tags it was made with."""
        setting, signature = tags.setting, tags.signature
        proposal = None if tags.proposal is None else int(tags.proposal)
        verdict = PLAIN if proposal is None else self.by_signature.get(signature, tags.outcome)
        place = self.settings.index(setting)
        label = setting_labels(self.settings)[setting]
        return run_name(label, setting, proposal, int(tags.seed), verdict), {
            COLOUR: colour(place, proposal, verdict),
            VERDICT: verdict,
            IN_PAIR: "yes" if signature in self.shown else "no",
            OF_PROPOSAL: PLAIN if proposal is None else self.outcomes.get(signature, "open"),
        }


@dataclass(frozen=True)
class SweepPages:
    """Content of MLflow's pages of a whole sweep."""

    definition: Definition
    verdicts: Verdicts
    settings: Mapping[str, SettingResult]  # what each came to, in the order of the sweep
    findings: Sequence[str]  # in sentences
    storage: str  # the root that its records lie below
    started_ms: int  # when the sweep was first run
    ended_ms: int | None = None  # None while it runs


def _verdict(one: ProposalOutcome, chosen: SettingResult) -> str:
    if chosen.winner is not None and one.number == chosen.winner.number:
        return WINNER
    if chosen.shown is not None and one.number == chosen.shown.number:
        return CLOSEST
    if one.hindrance == "not feasible":
        return one.outcome
    return one.hindrance or beaten_by(chosen.winner, one)
