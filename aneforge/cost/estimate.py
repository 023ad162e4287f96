"""``af.estimate`` and ``model.estimate``: the time of a compiled program by layers, with its interval and basis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from aneforge.compiler.compile import compile_target, resolve_target
from aneforge.compiler.program import Program, ProgramLayer
from aneforge.cost.constants import Basis, basis_of
from aneforge.cost.device import SCOPES, Roof, call_us, layer_us
from aneforge.cost.program import work_of_program
from aneforge.cost.work import Work
from aneforge.errors import AneforgeError, UnavailableError
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.targets.chip import Target

__all__ = ["Estimate", "LayerEstimate", "estimate", "estimate_program", "estimate_provenance"]

DEFAULT_SCOPE = "coreml_call"


@dataclass(frozen=True)
class LayerEstimate:
    number: int
    op: str
    sources: tuple[str, ...]
    us: float
    bound: str
    """``compute``, ``weights``, ``activations`` or ``dispatch``."""
    flops: float
    traffic: float
    """Bytes that pass the engine once: weights as they are stored, activations in and out."""

    @property
    def intensity(self) -> float:
        """Operations per byte: its place along the roofline."""
        return self.flops / self.traffic if self.traffic else 0.0

    @property
    def rate(self) -> float:
        """Operations per microsecond that it reaches: its height under the roofline."""
        return self.flops / self.us if self.us else 0.0

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "sources": list(self.sources), "intensity": self.intensity, "rate": self.rate}


@dataclass(frozen=True)
class Estimate:
    """Microseconds of one call, between two that hold eight times of ten, and what they rest on."""

    us: float
    interval: tuple[float, float]
    scope: str
    layers: tuple[LayerEstimate, ...]
    basis: Basis

    @property
    def engine_us(self) -> float:
        return sum(each.us for each in self.layers)

    @property
    def roof(self) -> Roof:
        """The roofline of the chip that the layers lie under."""
        return self.basis.constants.roof

    def bounds(self) -> dict[str, float]:
        """How much of the engine's time each bound takes."""
        found: dict[str, float] = {}
        for each in self.layers:
            found[each.bound] = found.get(each.bound, 0.0) + each.us
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def to_json(self) -> dict[str, Any]:
        return {
            "us": self.us,
            "interval": list(self.interval),
            "scope": self.scope,
            "engine_us": self.engine_us,
            "bounds": self.bounds(),
            "roof": {"peak": self.roof.peak, "bandwidth": self.roof.bandwidth, "ridge": self.roof.ridge},
            "basis": self.basis.to_json(),
            "layers": [each.to_json() for each in self.layers],
        }

    def __str__(self) -> str:
        low, high = self.interval
        label = "fitted" if self.basis.measured else "extrapolated"
        return f"{self.us:,.0f} us ({low:,.0f} to {high:,.0f}), {self.scope}, {label}: {self.basis.rule}"


def estimate_program(program: Program, scope: str = DEFAULT_SCOPE) -> Estimate:
    if scope not in SCOPES or scope == "slope":
        raise AneforgeError(f"no scope {scope!r}; it is {', '.join(each for each in SCOPES if each != 'slope')}")
    basis = basis_of(program.target)
    told = tuple(
        _layer(layer, work, basis) for layer, work in zip(program.layers, work_of_program(program), strict=True)
    )
    io = tuple(float(sum(2 * prod(port.ndchw_shape) for port in ports)) for ports in (program.inputs, program.outputs))
    us = call_us(scope, [each.us for each in told], (io[0], io[1]), basis.constants)
    low, high = basis.spread
    return Estimate(us, (us * low, us * high), scope, told, basis)


def _layer(layer: ProgramLayer, work: Work, basis: Basis) -> LayerEstimate:
    time = layer_us(work, basis.constants)
    us = 0.0 if layer.engine == "view" else time.us
    return LayerEstimate(layer.number, layer.op, layer.sources, us, time.bound, work.flops, work.traffic)


def estimate(
    out: Tensor | Sequence[Tensor] | Graph,
    int8: bool = False,
    target: str | int | Target | None = None,
    scope: str = DEFAULT_SCOPE,
) -> float:
    """Microseconds of one call on a target (the host's family, or the H13 floor, by default)."""
    if int8:
        raise UnavailableError("estimate: int8 needs the weight encoder; encode the weights (af.Encoded) instead")
    return estimate_program(compile_target(Graph.of(out), resolve_target(target)), scope).us


def estimate_provenance(target: str | int | Target) -> dict[str, Any]:
    """What a target's estimates rest on: whose constants, by which rule, fitted to how many measurements."""
    return basis_of(resolve_target(target)).to_json()
