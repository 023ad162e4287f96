"""What the adviser found: every option with its bytes, times and errors, and the choice for each chip and runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aneforge.compress.placements import Placement
from aneforge.output.by_chip import ByChip
from aneforge.study.runtimes import Runtime
from aneforge.targets.chip import Target
from aneforge.tuning.checking import Check

__all__ = ["FP16", "Advice", "ChipAdvice", "LayerOption", "LayerRow", "Option", "Recommendation", "front"]

FP16 = "fp16"
"""The option that changes nothing."""


@dataclass(frozen=True, eq=False)
class Option:
    """The whole model with its weights stored in one way, on one chip."""

    name: str
    forms: Mapping[str, str]
    """The encoding of each layer that has one, by layer."""
    stored_bytes: int
    """The weights of all layers that were considered, as a file stores them."""
    program_bytes: int
    """All constants of the compiled program: what folds is dense here."""
    streaming: int
    folding: int
    """How many of the encoded layers reach the engine as they are stored, and how many as dense fp16."""
    confidence: str
    """How well it is known whether the form streams on this family."""
    check: Check
    """Against the fp16 model, both simulated on this chip."""
    metric: float | None
    placements: Mapping[str, Placement]
    """By runtime."""
    warning: str = ""
    """What is published about this form by the vendor's own ways to the engine."""

    @property
    def flow(self) -> str:
        """``streams``, ``folds``, or how many layers stream."""
        if not self.streaming and not self.folding:
            return "-"
        word = "streams" if not self.folding else "folds" if not self.streaming else ""
        return word or f"{self.streaming} of {self.streaming + self.folding} stream"

    def to_json(self) -> dict[str, Any]:
        return {
            **{name: value for name, value in self.__dict__.items() if name not in ("check", "placements")},
            "forms": dict(self.forms),
            "flow": self.flow,
            "max_error": self.check.error,
            "cosine": self.check.cosine,
            "same_bits": self.check.same_bits,
            "runtimes": {name: place.to_json() for name, place in self.placements.items()},
        }


@dataclass(frozen=True)
class LayerOption:
    """One layer in one encoding on one chip."""

    encoding: str
    stored_bytes: int
    streams: bool | None
    """None where the layer has no program of its own there."""
    us: float | None
    """The layer alone on the engine."""
    before_us: float | None
    error: float | None
    """Of the layer's own outputs, by the second moments of its inputs; None where the inputs are rounded too."""

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class LayerRow:
    """One layer with a stored weight."""

    name: str
    op: str
    shape: tuple[int, ...]
    fp16_bytes: int
    options: tuple[LayerOption, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "shape": list(self.shape),
            "options": [option.to_json() for option in self.options],
        }


@dataclass(frozen=True)
class Recommendation:
    """The option to take by one runtime, and why."""

    option: str
    before_us: float
    """Of a call with fp16 weights."""
    us: float
    share: float
    """The bytes of the program, of those with fp16 weights."""
    error: float
    limit: float
    """The largest error that was allowed."""
    faster: tuple[tuple[str, float], ...]
    """Options that are faster and over the limit, with their errors."""

    @property
    def times(self) -> str:
        return f"{self.before_us:.1f} us becomes {self.us:.1f} us"

    @property
    def reason(self) -> str:
        """All but the times."""
        limit = f"{100 * self.limit:.3g} %"
        if self.option == FP16:
            why = f"No other form within an error of {limit} is faster by estimate."
        else:
            why = f"{100 * self.share:.0f} % of the bytes, largest error {100 * self.error:.2g} %."
        if not self.faster:
            return why
        listed = ", ".join(f"{name} ({100 * error:.2g} %)" for name, error in self.faster)
        return f"{why} Faster, but over the error of {limit}: {listed}."

    def to_json(self) -> dict[str, Any]:
        faster = [{"option": name, "max_error": error} for name, error in self.faster]
        return {**self.__dict__, "faster": faster, "reason": self.reason}


@dataclass(frozen=True, eq=False)
class ChipAdvice:
    """All options on one chip."""

    target: Target
    options: tuple[Option, ...]
    layers: tuple[LayerRow, ...]
    runtimes: tuple[Runtime, ...]
    recommended: Mapping[str, Recommendation]
    """By runtime."""
    measured: bool
    """Whether the times rest on measurements of this very chip."""
    graphs: Mapping[str, Any] = field(default_factory=dict)
    """The graph of each option."""

    def option(self, name: str) -> Option:
        return next(option for option in self.options if option.name == name)

    def front(self, runtime: str) -> list[str]:
        """The options by one runtime that no other beats: in time, error and bytes of the program together."""
        return front(self.options, runtime)

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target.name,
            "measured": self.measured,
            "options": [option.to_json() for option in self.options],
            "layers": [layer.to_json() for layer in self.layers],
            "front": {runtime.name: self.front(runtime.name) for runtime in self.runtimes},
            "recommended": {name: choice.to_json() for name, choice in self.recommended.items()},
        }


def front(options: Sequence[Option], runtime: str) -> list[str]:
    """The options with a known time that no other is at least as good as in all three and better than in one."""
    points: dict[str, tuple[float, float, float]] = {}
    for option in options:
        place = option.placements.get(runtime)
        if place is not None and place.us is not None:
            points[option.name] = (place.us, option.check.error, float(option.program_bytes))
    return [
        name
        for name, point in points.items()
        if not any(
            all(a <= b for a, b in zip(other, point, strict=True)) and other != point for other in points.values()
        )
    ]


class Advice(ByChip[ChipAdvice]):
    """The options and choices of each chip, by the name it was asked for."""

    def __init__(
        self, results: Mapping[str, ChipAdvice], model: str, basis: Mapping[str, Any], refused: Mapping[str, str]
    ) -> None:
        super().__init__(results)
        self.model = model
        self.refused = dict(refused)
        """Chips that run nothing of the model, and why."""
        self.basis = dict(basis)
        """What the errors rest on: samples, seed, mode, method, sparsity, the error that is allowed."""

    def to_json(self) -> dict[str, Any]:
        return {"model": self.model, **self.basis, **super().to_json(), "refused": self.refused}

    def text(self, layers: bool = False) -> str:
        from aneforge.compress.text import advice_text

        return advice_text(self, layers)

    def __str__(self) -> str:
        return self.text()
