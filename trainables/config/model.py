"""Configuration of the network: which one, and its options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from trainables.config.fields import NotNegative, Rule, Section, Untyped
from trainables.config.renamed import FIRST_NAMES, RENAMED
from trainables.errors import require
from trainables.plain import LATER, Json
from trainables.registry.built_in import MODELS
from trainables.registry.find_plugins import model_spec
from trainables.registry.specs import OPTIONS, ModelSpec, OwnValue


class Own(Mapping[str, OwnValue]):
    """Values of the options that a plug-in's model has for itself, by name; it can be hashed."""

    def __init__(self, values: Mapping[str, OwnValue] | None = None) -> None:
        self._values = dict(sorted((values or {}).items()))

    def __getitem__(self, name: str) -> OwnValue:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))

    def __repr__(self) -> str:
        return repr(self._values)


_IS_OWN = Untyped(
    lambda own: isinstance(own, Mapping) and all(isinstance(name, str) for name in own),
    "a mapping of own options to values",
)


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Section):
    """The network of a run. ``variant`` names a forward of that model; '' is its default."""

    name: str = "ut"  # one of registry/built_in.py, or a plug-in's
    layers: int = 3  # L; of a checkpoint: as many as it has (encoder: or 0, then read from there)
    variant: str = ""  # one of the model's variants
    checkpoint: str | None = None  # vit, encoder, decoder: a Hugging Face model by name or folder
    # ^ text_ut: the model whose tokenizer and word embeddings it takes
    checkpoint_fingerprint: str = ""  # hash of its files; filled in before a sweep starts
    atoms_per_side: Annotated[int, Rule(lambda n: 1 <= n <= 256, "in 1..256")] = 24
    # ^ dust: m, a dictionary of m x m cosine atoms
    threshold: NotNegative[float] = 0.01
    # ^ dust: lambda_1 / c, below which a coefficient is set to zero
    pooling: Literal["cls", "mean"] | None = None
    # ^ what a classifier reads of a layer: its first token, or the mean; None: the model's

    lora_rank: Annotated[int, Rule(lambda n: 0 <= n <= 1024, "in 0..1024")] = 0
    # ^ encoder, decoder: of updates to every linear layer of the blocks, trained in the place of
    #   the checkpoint's weights (LoRA); 0: all weights are trained
    recompute: bool = False
    # ^ encoder, decoder: blocks run again in the backward pass; less memory, the same numbers

    start_jitter: NotNegative[float] = 0.0
    # ^ what is trained starts at p + start_jitter x rms(p) x N(0, 1), keyed by the seed: UT and
    #   DUST start alike on every seed otherwise
    own: Annotated[Mapping[str, OwnValue], _IS_OWN] = field(default=Own(), metadata=LATER)
    # ^ of a plug-in's model: its own options, each settable as model.own.NAME

    def __post_init__(self) -> None:
        """Fill in the model's default variant and pooling, then check."""
        known = ", ".join(map(repr, MODELS))
        is_name = isinstance(self.name, str)  # a file may give what has no hash
        self.require(is_name, "name", f"one of {known}, or the name of a plug-in")
        if self.variant == "":
            object.__setattr__(self, "variant", self.spec.variants[0])
        if self.pooling is None:
            object.__setattr__(self, "pooling", self.spec.pooling)
        super().__post_init__()
        # Signatures have fields by their first names, so that two of these would be one there.
        clashing = [name for name in self.spec.own if name in {*RENAMED, *FIRST_NAMES}]
        require(not clashing, "own", clashing, f"other names in the ModelSpec of {self.name}")
        object.__setattr__(self, "own", Own(self.spec.own_values(self.name, self.own)))

    def to_json(self) -> dict[str, Json]:
        """Plain values; of own options those that are not at their defaults.

        So an option that is new in a plug-in leaves stored arms and plans as they are.
        """
        return self._with_changed_own(super().to_json())

    def changed(self) -> dict[str, Json]:
        """``to_json`` of the fields that are not at their defaults, own options included."""
        return self._with_changed_own(super().changed())

    def _with_changed_own(self, values: dict[str, Json]) -> dict[str, Json]:
        defaults = self.spec.own
        own = {name: value for name, value in self.own.items() if value != defaults[name]}
        values.pop("own", None)
        return {**values, "own": own} if own else values

    def _check(self) -> None:
        spec = self.spec
        least = 0 if spec.open_depth else 1
        self.require(least <= self.layers <= 64, "layers", f"in {least}..64")
        allowed = f"one of {', '.join(map(repr, spec.variants))} for {self.name}"
        self.require(self.variant in spec.variants, "variant", allowed)
        for name in (*OPTIONS, "checkpoint_fingerprint"):
            option = name.removesuffix("_fingerprint")
            default = type(self).__dataclass_fields__[name].default
            owners = [model for model, row in MODELS.items() if option in row.options]
            self.require(
                option in spec.options or getattr(self, name) == default,
                name,
                f"left at {default!r} for {self.name}",
                f"only {' and '.join(owners)} {'has' if len(owners) == 1 else 'have'} it.",
            )
        self.require(
            "checkpoint" not in spec.options or self.checkpoint is not None,
            "checkpoint",
            f"the name or folder of a Hugging Face model where model.name is {self.name!r}",
        )

    @property
    def spec(self) -> ModelSpec:
        """The facts of the model, known without loading it; raises as ``model_spec``."""
        return model_spec(self.name)

    def with_values(self, named: Mapping[str, Json]) -> ModelConfig:
        """This section with other values; one named ``own.NAME`` goes among the own options.

        A network of another name begins with the defaults of its variant, pooling and own options,
        unless these are among the fields ``named``.
        """
        is_another = named.get("name", self.name) != self.name
        values = self.to_json()
        if is_another:
            values |= {"variant": "", "pooling": None, "own": {}}
        own = {n.removeprefix("own."): v for n, v in named.items() if n.startswith("own.")}
        values |= {n: v for n, v in named.items() if not n.startswith("own.")}
        return self.from_json({**values, "own": {**values.get("own", {}), **own}})
