"""The advice on weights as people read it."""

from __future__ import annotations

from collections.abc import Sequence

from aneforge.advice.compression_options import ChipWeightAdvice, LayerForms, WeightAdvice, WeightOption
from aneforge.advice.stored import FP16, RuntimePlacement
from aneforge.output import text
from aneforge.output.grouped import grouped, short, wrapped
from aneforge.output.text import plural
from aneforge.targets.names import chip_label

__all__ = ["advice_text"]


def advice_text(advice: WeightAdvice, layers: bool) -> str:
    """For each chip the options, what to take by each runtime, and what is published against an option."""
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
        row = [option.name, _bytes(option.stored_bytes), _flow(option), _cosine(option), _error(option.check.error)]
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
    return "0" if error == 0 else f"{100 * error:.2g} %"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def _layers(layers: Sequence[LayerForms]) -> list[str]:
    headers = ("layer", "weight", "as", "in the file", "on the chip", "layer error", "us", "fp16 us")
    rows = []
    for layer in layers:
        for option in layer.options:
            flow = "?" if option.streams is None else "streams" if option.streams else "folds"
            times = ("?" if us is None else f"{us:.1f}" for us in (option.us, option.before_us))
            shape = "x".join(map(str, layer.shape))
            size = _bytes(option.stored_bytes)
            rows.append((short(layer.name, 28), shape, option.encoding, size, flow, _error(option.error), *times))
    return ["", text.columns(headers, rows)]
