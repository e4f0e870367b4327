"""Declared networks: every method's points, the same on every seed.

Constraints and supervision have as many points, chosen on PILOT_SEEDS and the dev split from what
``--pilot`` trains, before the first fresh seed. UT has nine strengths of learnt weights, which no
pilot chose, and DUST four of its pilot's five. Replayed weights are of some of the detached points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from search_spaces import catalog
from trainables.config.arm import ArmConfig
from trainables.plain import Json

Fields = Mapping[str, Json]
Kind = Literal["product", "scheduled", "uncertainty", "gradnorm", "replayed", "exits", "cut"]
FIRST_SEED = 4000  # fresh: no search, pilot or audit has used one from here on
SEEDS = 10
PILOT_SEEDS = (0,)
SOURCE_SEED = 1  # of the constrained runs whose weights are replayed
PLAIN = "plain"
NOISE, LONGER = "plain, more noise", "plain, longer"
NOISIER = "gamma x 1 to 2"  # plain training on more noise, where one network stands for it


@dataclass(frozen=True)
class Network:
    """One network of a seed: who sets its layer weights, and how strongly."""

    name: str
    method: str
    kind: Kind = "product"
    fields: Fields = field(default_factory=dict)  # of the run
    knobs: Mapping[str, float] = field(default_factory=dict)  # of the setter
    of: str = PLAIN  # exits: the network that is frozen


@dataclass(frozen=True)
class Setting:
    """A network and data: what all share, and the methods that are compared."""

    says: str
    base: ArmConfig
    networks: Sequence[Network]
    pilots: Sequence[Network]


def constrained(*, detached: bool, alphas: Sequence[float], **fields: Json) -> list[Network]:
    """The constraint at several alphas; ``fields`` are of the constraint."""
    method = "detached" if detached else "Lagrangian"
    given = {f"constraint.{name}": value for name, value in fields.items()}
    says = "".join(f" {name} {value:g}" for name, value in fields.items())
    return [
        Network(
            f"{method} {alpha:g}{says}",
            method,
            fields={
                "constraint.alpha": alpha,
                "constraint.grad_through_previous": not detached,
                **given,
            },
        )
        for alpha in alphas
    ]


def supervised(
    omegas: Sequence[float], decays: Sequence[float], *, end: float = 1.0, until: float = 1.0
) -> list[Network]:
    """Deep supervision: fixed weights, or ones that change over the run."""
    method = "deep supervision" if end == 1.0 else "deep supervision, scheduled"
    says = "" if end == 1.0 else f" to x {end:g} by {until:g}"
    return [
        Network(
            f"omega {omega:g} q {decay:g}{says}",
            method,
            "scheduled",
            knobs={"omega": omega, "decay": decay, "end": end, "until": until},
        )
        for omega in omegas
        for decay in decays
    ]


def learnt(omegas: Sequence[float], gradnorm: Sequence[float] = ()) -> list[Network]:
    """Weights that training learns, times omega."""
    by_variance = [
        Network(f"uncertainty x {omega:g}", "learnt weights", "uncertainty", knobs={"omega": omega})
        for omega in omegas
    ]
    return by_variance + [
        Network(f"GradNorm x {omega:g}", "learnt weights", "gradnorm", knobs={"omega": omega})
        for omega in gradnorm
    ]


def replayed(of: Sequence[Network]) -> list[Network]:
    """The weights that constrained runs of SOURCE_SEED had, step by step."""
    return [
        Network(f"weights of {one.name}", "replayed weights", "replayed", fields=one.fields)
        for one in of
    ]


def held(of: Sequence[Network]) -> list[Network]:
    """The mean over the steps of those weights, at every step."""
    return [
        Network(
            f"mean weights of {one.name}",
            "mean of replayed weights",
            "replayed",
            fields=one.fields,
            knobs={"mean": True},
        )
        for one in of
    ]


def noisier(gamma: float, factors: Sequence[float]) -> list[Network]:
    """Plain training on more noise, and on noise from gamma up to that."""
    found = []
    for factor in factors:
        high = round(gamma * factor, 3)
        more: Fields = {"train_gamma_low": high, "train_gamma_high": high}
        found += [
            Network(f"gamma x {factor:g}", NOISE, fields=more),
            Network(f"gamma x 1 to {factor:g}", NOISE, fields={"train_gamma_high": high}),
        ]
    return found


def longer(steps: int, factors: Sequence[int]) -> list[Network]:
    """Plain training for so many times the steps."""
    return [
        Network(f"steps x {k}", LONGER, fields={"steps": k * steps, "report_every": k * steps})
        for k in factors
    ]


ALWAYS = [
    Network(PLAIN, PLAIN),
    Network("exits on the frozen plain network", "exits on frozen plain", "exits"),
    Network("a plain network for each depth", "a network for each depth", "cut"),
]


def _base(space: str, setting: str, **fields: Json) -> ArmConfig:
    """The first run of a setting of a space, with seeds that draw the weights."""
    found = catalog.find(space).space
    run = found.run(found.setting(setting), {}, seed=0)
    return run.with_fields({"model.start_jitter": 0.3, "early_stop": False, **fields})


_OMEGAS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)  # of learnt weights
_WEAK = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
_PILOTS = [
    *ALWAYS,
    *supervised((0.001, 0.003, 0.006, 0.01, 0.02, 0.03, 0.05, 0.1), (1.0, 0.7, 0.4)),
    *supervised(_WEAK, (1.0, 0.6), end=0.0, until=1.0),
    *supervised(_WEAK, (1.0, 0.6), end=0.0, until=0.5),
    *supervised((0.03, 0.1, 0.3, 1.0), (1.0, 0.6), end=0.03, until=0.5),
    *supervised((0.03, 0.1, 0.3, 1.0), (1.0, 0.6), end=0.1, until=0.25),
    *supervised((0.001, 0.003, 0.01), (1.0, 0.6), end=3.0, until=1.0),
    *learnt(_OMEGAS, _OMEGAS[1:4]),
]
_ALPHAS = (0.03, 0.045, 0.06, 0.07, 0.08, 0.09, 0.1, 0.11, 0.125, 0.14, 0.16, 0.18)
_CONSTRAINED = [
    network
    for detached in (True, False)
    for dual_lr in (1e-4, 3e-4, 1e-3)
    for resilience in (0.3, 1.1)
    for network in constrained(
        detached=detached, alphas=_ALPHAS[::2], dual_lr=dual_lr, resilience=resilience
    )
]
_SECOND = [  # beyond the edges at which the first pilots were best
    ALWAYS[0],
    *supervised((0.03, 0.1, 0.3, 1.0), (0.25, 0.1)),
    *supervised((0.03, 0.1, 0.3, 1.0), (0.4, 0.25), end=0.0, until=1.0),
    *supervised((0.1, 0.3, 1.0), (0.4,), end=0.1, until=0.25),
    *supervised((0.003, 0.01, 0.03), (0.4,), end=3.0, until=1.0),
    *constrained(detached=True, alphas=(0.2, 0.25, 0.3, 0.4, 0.5), dual_lr=3e-4, resilience=1.1),
    *constrained(detached=True, alphas=(0.2, 0.25, 0.3, 0.4, 0.5), dual_lr=1e-3, resilience=1.1),
    *constrained(detached=True, alphas=(0.06, 0.125, 0.2), dual_lr=3e-3, resilience=1.1),
    *constrained(detached=False, alphas=(0.2, 0.25, 0.3), dual_lr=1e-4, resilience=1.1),
    *constrained(detached=False, alphas=(0.1, 0.16, 0.2, 0.3), dual_lr=3e-5, resilience=1.1),
    *constrained(detached=False, alphas=(0.03, 0.06), dual_lr=3e-4, resilience=10.0),
]
_REPLAYED = constrained(detached=True, alphas=(0.06, 0.08, 0.1, 0.125))


def _forms(
    points: Sequence[tuple[bool, float, float, Sequence[float]]], **fields: Json
) -> list[Network]:
    """The constraint at several points: detached or not, dual_lr, resilience, alphas."""
    return [
        network
        for detached, dual_lr, resilience, alphas in points
        for network in constrained(
            detached=detached, alphas=alphas, dual_lr=dual_lr, resilience=resilience, **fields
        )
    ]


_MIXED = noisier(0.15, (1.5, 2.0, 3.0))


def _beside(
    networks: Sequence[Network],
    replays: Sequence[str],
    frozen: str,
    noise: Sequence[Network] = _MIXED,
) -> list[Network]:
    """Plain networks, exits on the detached network ``frozen``, and the replays by name."""
    exits = Network(f"exits on the frozen {frozen}", "exits on frozen detached", "exits", of=frozen)
    return [*ALWAYS, exits, *replayed(_named(networks, replays)), *noise]


def _named(networks: Sequence[Network], names: Sequence[str]) -> list[Network]:
    by_name = {network.name: network for network in networks}
    return [by_name[name] for name in names]


_SHIFTS: Fields = {
    "shifts": ["blur", "brightness", "compression", "occlusion", "salt_and_pepper", "frame_drop"]
}

# Chosen by --pilot from 92 tries of supervision and 94 of constraints, each method over the
# allowances at which its own tries were best.
_OF_PHOTOGRAPHS = _forms(
    [
        (True, 1e-3, 0.3, (0.06, 0.08, 0.1)),
        (True, 1e-3, 1.1, (0.1, 0.125)),
        (True, 3e-4, 1.1, (0.125, 0.16, 0.25, 0.4)),
        (True, 3e-3, 1.1, (0.06, 0.125, 0.2)),
        (False, 3e-4, 10.0, (0.03, 0.06)),
        (False, 3e-4, 0.3, (0.08, 0.16)),
        (False, 1e-4, 1.1, (0.16, 0.2, 0.25, 0.3)),
        (False, 3e-5, 1.1, (0.16,)),
        (False, 1e-3, 1.1, (0.1, 0.125)),
        (False, 1e-3, 0.3, (0.16,)),
    ]
)
_OF_PED2 = _forms(
    [
        (True, 1e-3, 0.3, (0.03, 0.06, 0.08, 0.1)),
        (True, 3e-4, 1.1, (0.125, 0.16, 0.2, 0.25, 0.3)),
        (True, 1e-3, 1.1, (0.3, 0.4, 0.5)),
        (False, 1e-4, 1.1, (0.03, 0.06, 0.08, 0.1, 0.125, 0.16)),
        (False, 3e-5, 1.1, (0.1, 0.16, 0.2, 0.3)),
        (False, 3e-4, 0.3, (0.125,)),
        (False, 3e-4, 1.1, (0.16,)),
    ]
)


def _f0(
    part: float,
    *,
    detached: Sequence[float] = (),
    lagrangian: Sequence[float] = (),
    dual_lr: float = 1e-3,
) -> list[Network]:
    """The constraint on DUST: f0 as a part of the input's loss, and alphas of both forms."""
    points = [(True, dual_lr, 0.3, detached), (False, dual_lr, 0.3, lagrangian)]
    return _forms(points, reference_loss=part)


_WEIGHTS = (0.03, 0.1, 0.3, 1.0, 3.0)
_DUST_PILOTS = [
    *ALWAYS,
    *_f0(0.06, detached=(0.15, 0.3, 0.45, 0.6, 0.75), lagrangian=(0.15, 0.3, 0.45, 0.6)),
    *_f0(0.02, detached=(0.15, 0.3, 0.45, 0.6, 0.75), lagrangian=(0.15, 0.3, 0.45, 0.6)),
    *_f0(1.0, detached=(0.6, 0.75), lagrangian=(0.6, 0.75)),
    *_f0(0.06, detached=(0.3, 0.6), lagrangian=(0.3, 0.6), dual_lr=3e-5),
    *_f0(0.01, detached=(0.3,)),
    *supervised(_WEIGHTS, (1.0, 0.4)),
    *supervised((10.0,), (1.0,)),
    *supervised((0.3, 1.0, 3.0, 10.0), (1.0,), end=0.0, until=1.0),
    *supervised((0.3, 1.0, 3.0), (1.0,), end=0.0, until=0.8),
    *supervised((0.3, 1.0, 10.0), (1.0,), end=0.0, until=0.5),
    *supervised((0.3, 1.0), (0.4,), end=0.0, until=1.0),
    *supervised((1.0, 10.0), (1.0,), end=0.03, until=0.5),
    *supervised((0.1, 0.3), (1.0,), end=3.0, until=1.0),
    *learnt((0.1, 0.3, 1.0), (0.1, 1.0)),
]

_OF_DUST = [
    *_f0(0.06, detached=(0.45, 0.6, 0.75), lagrangian=(0.45,)),
    *_f0(0.02, detached=(0.3, 0.45, 0.6, 0.75), lagrangian=(0.45,)),
    *_f0(0.01, detached=(0.3,)),
    *_f0(0.06, lagrangian=(0.6,), dual_lr=3e-5),
    *_f0(1.0, lagrangian=(0.6,)),
]
_DUST_REPLAY = "detached 0.6 dual_lr 0.001 resilience 0.3 reference_loss 0.02"
_DUST_STEPS = 1200

SETTINGS: Mapping[str, Setting] = {
    "photographs_ut": Setting(
        says="UT with 5 layers on the built-in photographs, as in the quickstart",
        base=_base("quickstart", "photographs-ut-L5-g0.15-detached", report_every=1000, **_SHIFTS),
        networks=[
            *_beside(
                _OF_PHOTOGRAPHS,
                [
                    "detached 0.08 dual_lr 0.001 resilience 0.3",
                    "detached 0.1 dual_lr 0.001 resilience 0.3",
                    "detached 0.125 dual_lr 0.001 resilience 1.1",
                    "detached 0.25 dual_lr 0.0003 resilience 1.1",
                ],
                frozen="detached 0.1 dual_lr 0.001 resilience 0.3",
            ),
            *_OF_PHOTOGRAPHS,
            *supervised((0.001, 0.003, 0.006, 0.01, 0.02), (0.7,)),
            *supervised((0.006,), (0.4,)),
            *supervised((0.003, 0.006, 0.01, 0.02, 0.03, 0.05), (1.0,)),
            *supervised((0.1, 0.3), (0.6,), end=0.0, until=0.5),
            *supervised((0.03, 0.1, 0.3), (1.0,), end=0.0, until=0.5),
            *supervised((0.3,), (0.6,), end=0.03, until=0.5),
            *supervised((0.1, 0.3), (0.6,), end=0.0),
            *supervised((0.03, 0.1), (1.0,), end=0.0),
            *supervised((0.1, 0.3), (1.0,), end=0.1, until=0.25),
            *learnt(_OMEGAS, _OMEGAS[1:4]),
        ],
        pilots=[*_PILOTS, *_CONSTRAINED, *_SECOND, *replayed(_REPLAYED)],
    ),
    "ped2_ut": Setting(
        says="UT with 5 layers on small frames of UCSD Ped2",
        base=_base(
            "ped2_ut",
            "ucsd_ped2-ut-L5-g0.15-detached",
            report_every=900,
            eval_windows=24,
            **{"data.frame_size": 48, "data.patch_size": 8},
            **_SHIFTS,
        ),
        networks=[
            *_beside(
                _OF_PED2,
                [
                    "detached 0.06 dual_lr 0.001 resilience 0.3",
                    "detached 0.1 dual_lr 0.001 resilience 0.3",
                    "detached 0.2 dual_lr 0.0003 resilience 1.1",
                    "detached 0.3 dual_lr 0.0003 resilience 1.1",
                ],
                frozen="detached 0.1 dual_lr 0.001 resilience 0.3",
            ),
            *_OF_PED2,
            *supervised((0.03, 0.1, 0.3, 1.0), (0.1,)),
            *supervised((0.03, 0.1, 1.0), (0.25,)),
            *supervised((0.03, 0.05, 0.1), (0.4,)),
            *supervised((0.05,), (0.7,)),
            *supervised((0.02,), (1.0,)),
            *supervised((0.01,), (0.6,), end=0.0, until=0.5),
            *supervised((0.03,), (0.6,), end=0.03, until=0.5),
            *supervised((0.03, 0.1, 0.3), (0.25,), end=0.0),
            *supervised((0.3, 1.0), (0.4,), end=0.0),
            *supervised((0.3,), (0.6,), end=0.0),
            *supervised((0.1,), (0.6,), end=0.1, until=0.25),
            *supervised((0.3, 1.0), (0.4,), end=0.1, until=0.25),
            *supervised((0.03,), (0.4,), end=3.0),
            *learnt(_OMEGAS, _OMEGAS[1:4]),
        ],
        pilots=[*_PILOTS, *_CONSTRAINED, *_SECOND, *replayed(_REPLAYED)],
    ),
    "ped2_dust": Setting(
        says="DUST with 5 layers, a dictionary each, on small frames of UCSD Ped2",
        base=_base(
            "ped2_dust",
            "ucsd_ped2-dust-L5-g0.13-detached",
            train_gamma=0.15,
            # Best of plain training on dev: of rates from 0.001 to 0.1 at a clip of 1, then of
            # clips from 1e-5 to none. A clip of 1 normalises the gradients of multipliers that
            # grow, and plain training's at some steps only.
            primal_lr=0.02,
            grad_clip=1e-3,
            steps=_DUST_STEPS,
            report_every=_DUST_STEPS,
            batch_size=32,
            eval_windows=24,
            **{"data.frame_size": 48, "data.patch_size": 8, "model.atoms_per_side": 12},
            **{
                "constraint.scale": "schedule",
                "constraint.reference_unit": "identity",
                "constraint.reference_loss": 1.0,
                "constraint.dual_signal": "relative",
            },
            **_SHIFTS,
        ),
        networks=[
            *_beside(_OF_DUST, [_DUST_REPLAY], _DUST_REPLAY, noisier(0.15, (2.0,))),
            *held(_named(_OF_DUST, [_DUST_REPLAY])),
            *longer(_DUST_STEPS, (2, 4)),
            *_OF_DUST,
            *supervised((0.03, 0.1, 0.3, 1.0), (1.0,)),
            *supervised((0.1, 1.0), (0.4,)),
            *supervised((0.3, 1.0), (1.0,), end=0.0),
            *supervised((0.3,), (1.0,), end=0.0, until=0.8),
            *supervised((0.3,), (1.0,), end=0.0, until=0.5),
            *supervised((1.0,), (1.0,), end=0.03, until=0.5),
            *supervised((0.1,), (1.0,), end=3.0),
            *learnt((0.1, 0.3, 1.0), (0.1,)),
        ],
        pilots=_DUST_PILOTS,
    ),
}
