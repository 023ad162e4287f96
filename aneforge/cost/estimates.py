"""``af.estimate_all``: how long a model takes on each chip; the report that ``aneforge estimate`` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aneforge.arguments import Chips, Source, chips_of, graph_of
from aneforge.compiler.compile import compile_all
from aneforge.compiler.program import Program
from aneforge.compiler.refusal import CompileError
from aneforge.cost.estimate import Estimate, estimate_program
from aneforge.defaults import DEFAULT_CHIPS
from aneforge.errors import ArgumentError
from aneforge.output import text
from aneforge.output.by_chip import ByChip
from aneforge.targets.names import chip_label

__all__ = ["Estimates", "estimate_all"]

_LAYERS = 20


def estimate_all(
    model: Source,
    target: Chips = None,
    scope: str = "coreml_call",
    vendor: bool = False,
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> Estimates:
    """Estimate how long a model takes on each chip, with the interval and the basis of every figure.

    ``target`` is m1..m6 where it is left out. ``scope`` is what a call covers: ``coreml_call`` (a call in an app),
    ``host_call``, ``direct_call`` or ``device_task``. ``vendor`` adds the time by the compiler's own published model.
    A chip that refuses the model is in ``.refused`` with its reason.
    """
    chips = chips_of(target, DEFAULT_CHIPS["estimate"])
    compiled = compile_all(graph_of(model, dims, function), list(chips.values()))
    labels = {chip_label(name): chip for name, chip in chips.items()}
    refused = {label: compiled.refused[chip.name] for label, chip in labels.items() if chip.name in compiled.refused}
    programs = {label: compiled[chip.name] for label, chip in labels.items() if label not in refused}
    estimates = {label: estimate_program(program, scope) for label, program in programs.items()}
    return Estimates(tuple(labels), estimates, refused, _vendor_us(programs) if vendor else None)


def _vendor_us(programs: Mapping[str, Program]) -> dict[str, float | None]:
    from aneforge.cost.vendor_model import vendor_estimate

    return {name: vendor_estimate(program).us for name, program in programs.items()}


class Estimates(ByChip[Estimate]):
    """The estimate of each chip that takes the model, by label; the others are in ``refused`` with the reason."""

    def __init__(
        self,
        asked: tuple[str, ...],
        estimates: Mapping[str, Estimate],
        refused: Mapping[str, CompileError],
        vendor_us: Mapping[str, float | None] | None = None,
    ) -> None:
        super().__init__(estimates)
        self.asked = asked
        self.refused = dict(refused)
        self.vendor_us = vendor_us
        """Microseconds by the compiler's own published model, where they were asked for."""

    def in_order(self) -> dict[str, Estimate | CompileError]:
        """Every chip that was asked for: its estimate, or why there is none."""
        both: dict[str, Estimate | CompileError] = {**self, **self.refused}
        return {label: both[label] for label in self.asked}

    def require(self) -> None:
        """Raise the first reason where no chip takes the model."""
        if not len(self):
            first = next(iter(self.refused.values()))
            raise ArgumentError("model", f"no program for {', '.join(self.refused)}: {first}")

    def to_json(self) -> dict[str, Any]:
        record: dict[str, Any] = {
            "estimates": {name: estimate.to_json() for name, estimate in self.items()},
            "refused": {name: str(error) for name, error in self.refused.items()},
        }
        return record if self.vendor_us is None else {**record, "vendor_us": dict(self.vendor_us)}

    def __str__(self) -> str:
        return self.text()

    def text(self, layers: bool = False, basis: bool = False) -> str:
        """The table; ``layers`` adds the slowest layers, ``basis`` the constants behind the figures."""
        return "\n\n".join(self._parts(layers, basis))

    def _parts(self, layers: bool, basis: bool) -> Iterator[str]:
        if len(self):
            yield self._table()
        for name, error in self.refused.items():
            yield f"{name}: no program: {error}"
        for name, estimate in self.items():
            if basis:
                yield _basis_text(name, estimate)
            if layers:
                yield _layers_text(name, estimate)

    def _table(self) -> str:
        headers = ("chip", "us", "from", "to", "on the engine", "mJ", "mostly", "basis")
        rows = [_row(name, estimate) for name, estimate in self.items()]
        if self.vendor_us is not None:
            headers = (*headers[:-1], "compiler's view", headers[-1])
            views = map(_whole, self.vendor_us.values())
            rows = [(*row[:-1], view, row[-1]) for row, view in zip(rows, views, strict=True)]
        return text.columns(headers, rows)


def _row(name: str, estimate: Estimate) -> tuple[object, ...]:
    numbers = (estimate.us, *estimate.interval, estimate.engine_us)
    energy = "?" if estimate.energy_mj is None else f"{estimate.energy_mj:.2f}"
    basis = estimate.basis
    source = f"fitted to {basis.rows} rows" if basis.measured else f"extrapolated from {chip_label(basis.taken_from)}"
    return name, *map(_whole, numbers), energy, next(iter(estimate.bounds()), "-"), source


def _whole(us: float | None) -> str:
    return "?" if us is None else f"{us:.0f}"


def _basis_text(name: str, estimate: Estimate) -> str:
    facts = sorted(estimate.basis.evidence.items())
    rows = [(key, f"{fact.value:g}", fact.label(), fact.note or "published") for key, fact in facts]
    return f"{name}: {estimate.basis.rule}\n{text.columns(('constant', 'value', 'evidence', 'why'), rows)}"


def _layers_text(name: str, estimate: Estimate) -> str:
    longest = sorted(estimate.layers, key=lambda layer: -layer.us)[:_LAYERS]
    rows = [
        (one.number, one.op, f"{one.us:.1f}", one.bound, f"{one.rate / 1e6:.2f}", ", ".join(one.sources[:3]))
        for one in longest
    ]
    table = text.columns(("layer", "op", "us", "bound", "TFLOP/s", "from"), rows)
    return f"{name}, the layers that take longest:\n{table}"
