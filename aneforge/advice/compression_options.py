"""What the adviser on weights found: every option with its bytes, times and errors, and the choice for each chip and
runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aneforge.advice.checking import Deviation
from aneforge.advice.stored import FP16, StoredModel
from aneforge.output.by_chip import ByChip
from aneforge.study.runtimes import Runtime
from aneforge.targets.chip import Target

__all__ = ["ChipWeightAdvice", "LayerForms", "LayerInForm", "Recommendation", "WeightAdvice", "WeightOption"]


@dataclass(frozen=True, eq=False)
class WeightOption(StoredModel):
    """One way to store the weights on one chip, and what it does to the results."""

    confidence: str
    """How well it is known whether the form streams on this family."""
    check: Deviation
    """Against the fp16 model, both simulated on this chip."""
    metric: float | None
    warning: str = ""
    """What is published about this form by the vendor's own ways to the engine."""

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "forms": dict(self.forms),
            "stored_bytes": self.stored_bytes,
            "program_bytes": self.program_bytes,
            "streaming": self.streaming,
            "folding": self.folding,
            "confidence": self.confidence,
            "metric": self.metric,
            "warning": self.warning,
            "flow": self.flow,
            "max_error": self.check.error,
            "cosine": self.check.cosine,
            "same_bits": self.check.same_bits,
            "runtimes": {name: place.to_json() for name, place in self.placements.items()},
        }


@dataclass(frozen=True)
class LayerInForm:
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
class LayerForms:
    """One layer with a stored weight, in each form that was tried."""

    name: str
    op: str
    shape: tuple[int, ...]
    fp16_bytes: int
    options: tuple[LayerInForm, ...]

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
class ChipWeightAdvice:
    """All options on one chip."""

    target: Target
    options: tuple[WeightOption, ...]
    layers: tuple[LayerForms, ...]
    runtimes: tuple[Runtime, ...]
    recommended: Mapping[str, Recommendation]
    """By runtime."""
    measured: bool
    """Whether the times rest on measurements of this very chip."""
    graphs: Mapping[str, Any] = field(default_factory=dict)
    """The graph of each option."""

    def option(self, name: str) -> WeightOption:
        return next(option for option in self.options if option.name == name)

    def front(self, runtime: str) -> list[str]:
        """The options by one runtime that no other beats: those with a known time that none is at least as good as in
        time, error and bytes of the program, and better than in one."""
        points: dict[str, tuple[float, float, float]] = {}
        for option in self.options:
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

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target.name,
            "measured": self.measured,
            "options": [option.to_json() for option in self.options],
            "layers": [layer.to_json() for layer in self.layers],
            "front": {runtime.name: self.front(runtime.name) for runtime in self.runtimes},
            "recommended": {name: choice.to_json() for name, choice in self.recommended.items()},
        }


class WeightAdvice(ByChip[ChipWeightAdvice]):
    """The options and choices of each chip, by the name it was asked for."""

    def __init__(
        self, results: Mapping[str, ChipWeightAdvice], model: str, basis: Mapping[str, Any], refused: Mapping[str, str]
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
        from aneforge.advice.compression_text import advice_text

        return advice_text(self, layers)

    def __str__(self) -> str:
        return self.text()
