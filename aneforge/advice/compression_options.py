"""What the adviser on weights found: every option with its bytes, times and errors, and the choice for each chip and
runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from aneforge import text
from aneforge.advice.checking import Deviation
from aneforge.advice.stored import FP16, RuntimePlacement, StoredModel
from aneforge.chips.chip import Target
from aneforge.chips.evidence import Fact
from aneforge.chips.names import chip_label
from aneforge.chips.streams import published_gain
from aneforge.study.placement import Runtime
from aneforge.text import ByChip, grouped, human_bytes, plural, short, wrapped


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


@dataclass(frozen=True)
class LayerForms:
    """One layer with a stored weight, in each form that was tried."""

    name: str
    op: str
    shape: tuple[int, ...]
    fp16_bytes: int
    options: tuple[LayerInForm, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


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
            why = f"{100 * self.share:.0f} % of the bytes, largest error {text.percent(self.error)}."
        if not self.faster:
            return why
        listed = ", ".join(f"{name} ({text.percent(error)})" for name, error in self.faster)
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
    fitted: bool
    """Whether the times rest on measurements of this very chip."""
    graphs: Mapping[str, Any] = field(default_factory=dict)
    """The graph of each option."""

    @property
    def published_gain(self) -> Fact[str]:
        """What the cross-chip page gives for weights that stream on this family (U170)."""
        return published_gain(self.target.family5)

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
            "fitted": self.fitted,
            "options": [option.to_json() for option in self.options],
            "layers": [layer.to_json() for layer in self.layers],
            "published_gain": self.published_gain.to_json(),
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
        """For each chip the options, what to take by each runtime, and what is published against an option."""
        return _advice_text(self, layers)

    def __str__(self) -> str:
        return self.text()


# As text.


def _advice_text(advice: WeightAdvice, layers: bool) -> str:
    parts = [wrapped(_basis(advice))]
    if not any(chip.layers for chip in advice.values()):
        parts.append("No layer has a stored fp16 weight of 1,024 numbers or more: there is nothing to compress.")
    for name, chip in advice.items():
        parts += ["", _chip(chip_label(name), chip, layers)]
    notes = grouped(
        ((note, chip_label(name)) for name, chip in advice.items() for note in _notes(chip)), lambda pair: pair[0]
    )
    if notes:
        parts.append("")
    for note, members in notes.items():
        parts.append(wrapped(f"{note} On: {', '.join(label for _, label in members)}."))
    parts += [wrapped(f"{chip_label(name)}: {why}") for name, why in advice.refused.items()]
    return "\n".join(parts)


def _basis(advice: WeightAdvice) -> str:
    basis = advice.basis
    count = basis["samples"]
    inputs = plural(count, "sample")
    source = f"drawn from seed {basis['seed']}, not real data" if basis["seed"] is not None else "of the calibration"
    fitted = ""
    if basis["method"] == "calibrated":
        apart = "others" if basis["held_out"] else "the same"
        fitted = f" Weights are fitted to {basis['fitted_on']} samples, {apart} than those."
        fitted = fitted.replace("the same than those", "the same ones")
    return (
        f"{advice.model}: errors are against the fp16 model, simulated on each chip ({basis['mode']}) on {inputs} "
        f"{source}.{fitted}"
    )


def _chip(label: str, chip: ChipWeightAdvice, layers: bool) -> str:
    has_metric = any(option.metric is not None for option in chip.options)
    headers = ["weights", "in the file", "on the chip", "cosine", "max error", *(["metric"] if has_metric else [])]
    headers += [f"{runtime.label} us" for runtime in chip.runtimes]
    rows = []
    for option in chip.options:
        size, error = human_bytes(option.stored_bytes), _error(option.check.error)
        row = [option.name, size, _flow(option), _cosine(option), error]
        row += [f"{option.metric:.4g}"] if option.metric is not None else []
        rows.append([*row, *(_time(option.placements.get(runtime.name)) for runtime in chip.runtimes)])
    lines = [label, text.columns(headers, rows)]
    choices = grouped(chip.recommended.items(), lambda item: (item[1].option, item[1].reason))
    labels = {runtime.name: runtime.label for runtime in chip.runtimes}
    for (option, reason), members in choices.items():
        by = ", ".join(labels[name] for name, _ in members)
        if option == FP16:
            lines.append(wrapped(f"{by}: keep fp16. {reason}"))
            continue
        times = [f"{labels[name]} {choice.times}" if len(members) > 1 else choice.times for name, choice in members]
        lines.append(wrapped(f"{by}: {option}. By estimate {', '.join(times)}. {reason}"))
    if layers:
        lines += [*_layers(chip.layers)]
    return "\n".join(lines)


def _notes(chip: ChipWeightAdvice) -> list[str]:
    """Why options are not on the engine or have no time, each reason once and without the chip's name."""
    notes: dict[str, None] = {}
    for option in chip.options:
        forms = set(option.forms.values())
        if len(forms) != 1 or option.name not in forms:
            continue  # a mixture has what its forms have
        for why in [option.warning] if option.warning else [place.why for place in option.placements.values()]:
            plain = why.replace(f"of {chip.target.name}", "of the chip").replace(f"on {chip.target.name}", "there")
            if plain:
                notes[f"{option.name}: {plain}{'' if plain.endswith(('.', ']')) else '.'}"] = None
    if chip.published_gain.known and any(option.streaming and option.name != FP16 for option in chip.options):
        gain = f"The cross-chip page gives {chip.published_gain} for weights that stream; times here follow bytes."
        notes[gain] = None
    return list(notes)


def _flow(option: WeightOption) -> str:
    return option.flow if option.name == FP16 or not option.confidence else f"{option.flow} [{option.confidence}]"


def _time(place: RuntimePlacement | None) -> str:
    if place is None:
        return "-"
    if place.us is None:
        return "?" if place.on_engine else "not there"
    return f"{place.us:.1f}" if place.on_engine == place.ops else f"{place.us:.1f} in part"


def _cosine(option: WeightOption) -> str:
    return "1" if option.check.same_bits else f"{option.check.cosine:.5f}"


def _error(error: float | None) -> str:
    if error is None:
        return "?"
    return "0" if error == 0 else text.percent(error)


def _layers(layers: Sequence[LayerForms]) -> list[str]:
    headers = ("layer", "weight", "as", "in the file", "on the chip", "layer error", "us", "fp16 us")
    rows = []
    for layer in layers:
        for option in layer.options:
            flow = "?" if option.streams is None else "streams" if option.streams else "folds"
            times = ("?" if us is None else f"{us:.1f}" for us in (option.us, option.before_us))
            shape = "x".join(map(str, layer.shape))
            size = human_bytes(option.stored_bytes)
            rows.append((short(layer.name, 28), shape, option.encoding, size, flow, _error(option.error), *times))
    return ["", text.columns(headers, rows)]
