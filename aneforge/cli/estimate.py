"""``aneforge estimate``: how long a model takes on each chip, and what that rests on."""

from __future__ import annotations

from dataclasses import dataclass

from aneforge.cli.model_file import ModelFile, load_model
from aneforge.compiler.compile import compile_all
from aneforge.compiler.program import Program
from aneforge.compiler.refusal import CompileError
from aneforge.cost.estimate import Estimate, estimate_program
from aneforge.errors import AneforgeError
from aneforge.output import text
from aneforge.targets.listed import chip_list
from aneforge.targets.names import chip_label
from aneforge.targets.names import target as find_target

_LAYERS = 20


@dataclass(frozen=True)
class Estimated:
    """A model on the chips that were asked for, by label: a program and its estimate, or why there is none."""

    asked: tuple[str, ...]
    programs: dict[str, Program]
    estimates: dict[str, Estimate]
    refused: dict[str, CompileError]

    def in_order(self) -> dict[str, Estimate | CompileError]:
        both = {**self.estimates, **self.refused}
        return {label: both[label] for label in self.asked}

    def require(self) -> None:
        """An error with the first reason where no chip takes the model."""
        if not self.estimates:
            raise AneforgeError(f"no program for {', '.join(self.refused)}: {next(iter(self.refused.values()))}")


def estimated(model: str | ModelFile, chips: str, scope: str) -> Estimated:
    graph, asked = load_model(model), chip_list(chips)
    compiled = compile_all(graph, list(dict.fromkeys(find_target(each).name for each in asked)))
    found = Estimated(tuple(map(chip_label, asked)), {}, {}, {})
    for each in asked:
        name, label = find_target(each).name, chip_label(each)
        if name in compiled.refused:
            found.refused[label] = compiled.refused[name]
        else:
            found.programs[label] = compiled[name]
            found.estimates[label] = estimate_program(compiled[name], scope)
    return found


def run(
    model: str | ModelFile, chips: str, scope: str, layers: bool, basis: bool, vendor: bool, as_json: bool
) -> None:
    found = estimated(model, chips, scope)
    compilers_view = _vendor(found.programs) if vendor else {}
    if as_json:
        told = {name: each.to_json() for name, each in found.estimates.items()}
        refused = {name: str(why) for name, why in found.refused.items()}
        views = {"vendor_us": compilers_view} if vendor else {}
        print(text.as_json({"estimates": told, "refused": refused, **views}))
        return
    found.require()
    headers = ("chip", "us", "from", "to", "on the engine", "mJ", "mostly", "basis")
    rows = _rows(found.estimates)
    if vendor:
        headers = (*headers[:-1], "compiler's view", headers[-1])
        views = map(_whole, compilers_view.values())
        rows = [(*row[:-1], view, row[-1]) for row, view in zip(rows, views, strict=True)]
    print(text.columns(headers, rows))
    for name, why in found.refused.items():
        print(f"\n{name}: no program: {why}")
    for name, each in found.estimates.items():
        if basis:
            _print_basis(name, each)
        if layers:
            _print_layers(name, each)


def _rows(found: dict[str, Estimate]) -> list[tuple[object, ...]]:
    rows = []
    for name, each in found.items():
        numbers = (each.us, *each.interval, each.engine_us)
        energy = "?" if each.energy_mj is None else f"{each.energy_mj:.2f}"
        mostly = next(iter(each.bounds()), "-")
        own = each.basis.measured
        basis = (
            f"fitted to {each.basis.rows} rows" if own else f"extrapolated from {chip_label(each.basis.taken_from)}"
        )
        rows.append((name, *map(_whole, numbers), energy, mostly, basis))
    return rows


def _whole(us: float | None) -> str:
    return "?" if us is None else f"{us:.0f}"


def _vendor(programs: dict[str, Program]) -> dict[str, float | None]:
    from aneforge.cost.vendor_model import vendor_estimate

    return {name: vendor_estimate(each).us for name, each in programs.items()}


def _print_basis(name: str, found: Estimate) -> None:
    print(f"\n{name}: {found.basis.rule}")
    facts = sorted(found.basis.evidence.items())
    rows = [(key, f"{fact.value:g}", fact.label(), fact.note or "published") for key, fact in facts]
    print(text.columns(("constant", "value", "evidence", "why"), rows))


def _print_layers(name: str, found: Estimate) -> None:
    print(f"\n{name}, the layers that take longest:")
    longest = sorted(found.layers, key=lambda layer: -layer.us)[:_LAYERS]
    rows = [
        (one.number, one.op, f"{one.us:.1f}", one.bound, f"{one.rate / 1e6:.2f}", ", ".join(one.sources[:3]))
        for one in longest
    ]
    print(text.columns(("layer", "op", "us", "bound", "TFLOP/s", "from"), rows))
