"""What a call costs beside its layers: several inputs in one call, and ports whose rows are whole lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import ceil

from aneforge.advice.batch import batched
from aneforge.advice.change import LEAST_GAIN, Proposal, Question, estimated_graph
from aneforge.cost.calls import Ports, call_us
from aneforge.cost.constants import Basis
from aneforge.cost.estimate import Estimate, ports_of
from aneforge.graph.graph import Graph
from aneforge.tuning.records import Figure

__all__ = ["aligned_ports", "several_inputs"]

_COUNT = 8
_LINE = 32  # numbers of fp16 in a line of 64 bytes


def several_inputs(question: Question) -> Iterator[Proposal]:
    """Eight inputs in one call, where starting it takes a good part of the time."""
    if question.graph.states:
        return  # each call needs the state that the one before left
    whole = {name: estimate for name, estimate in question.estimates.items() if not estimate.parts}
    most = {name: (1 - 1 / _COUNT) * (estimate.us - estimate.engine_us) for name, estimate in whole.items()}

    def us(name: str, estimate: Estimate, basis: Basis) -> float:
        one = ports_of(question.splits[name].programs[0])
        ports = Ports(*(_COUNT * part for part in one))
        engine = _COUNT * estimate.engine_us
        return float(call_us(estimate.scope, engine, ports, basis.constants, estimate.calls)) / _COUNT

    if not most:
        return
    able = any(us >= LEAST_GAIN * whole[name].us for name, us in most.items())
    graph = batched(question.graph, _COUNT) if able else None
    compiled = "the batch was compiled and estimated; the time is that of one input"
    counted = f"by the cost model, each layer counted {_COUNT} times; the time is that of one input"
    yield Proposal(
        family="calls",
        name=f"{_COUNT} inputs in one call",
        cause="calls",
        what=f"give {_COUNT} inputs to one call (batch {_COUNT})",
        nodes=(),
        most=most,
        after=_by_cost_model(question, us) if graph is None else partial(_each_of, question, graph),
        how=counted if graph is None else compiled,
        numbers="same results",
    )


def _each_of(question: Question, graph: Graph, chips: Sequence[str]) -> dict[str, Figure]:
    """One input of a batch, by the estimate of the whole batch."""
    whole = estimated_graph(question, lambda: graph)(chips)
    return {
        name: Figure(figure.us / _COUNT, (figure.interval[0] / _COUNT, figure.interval[1] / _COUNT))
        for name, figure in whole.items()
    }


def aligned_ports(question: Question) -> Iterator[Proposal]:
    """Inputs and outputs whose rows end inside a line of 64 bytes are copied row by row."""
    most: dict[str, float] = {}
    for name, estimate in question.estimates.items():
        if not estimate.parts:
            saved = estimate.us - _padded_us(question, name, estimate, estimate.basis)
            if saved > 0:
                most[name] = saved
    if not most:
        return

    def us(name: str, estimate: Estimate, basis: Basis) -> float:
        return _padded_us(question, name, estimate, basis)

    program = question.splits[next(iter(most))].programs[0]
    ports = [port for port in (*program.inputs, *program.outputs) if _padded(port.user_shape) != port.user_shape]
    yield Proposal(
        family="ports",
        name="rows of whole lines",
        cause="calls",
        what=f"pad the last axis of the inputs and outputs to a multiple of {_LINE}",
        nodes=tuple(port.name for port in ports),
        most=most,
        after=_by_cost_model(question, us),
        how="by the cost model, with the padded bytes",
        numbers="same results",
    )


def _padded_us(question: Question, name: str, estimate: Estimate, basis: Basis) -> float:
    program = question.splits[name].programs[0]
    shapes = [[port.user_shape for port in ports] for ports in (program.inputs, program.outputs)]
    inputs, outputs = ([_padded(shape) for shape in group] for group in shapes)
    ports = Ports.of(inputs, outputs)
    return float(call_us(estimate.scope, estimate.engine_us, ports, basis.constants, estimate.calls))


def _padded(shape: Sequence[int]) -> tuple[int, ...]:
    return (*shape[:-1], ceil(shape[-1] / _LINE) * _LINE) if shape else ()


def _by_cost_model(
    question: Question, us: Callable[[str, Estimate, Basis], float]
) -> Callable[[Sequence[str]], dict[str, Figure]]:
    def after(chips: Sequence[str]) -> dict[str, Figure]:
        found: dict[str, Figure] = {}
        for name in chips:
            estimate = question.estimates[name]
            time = us(name, estimate, estimate.basis)
            found[name] = Figure(time, estimate.basis.interval(time, estimate.scope))
        return found

    return after
