"""One training step as one program: forward, backward and, where the engine has the optimiser, the new state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from aneforge.chips.chip import Target
from aneforge.compiler.lower import Port
from aneforge.errors import AneforgeError, GraphError
from aneforge.graph.graph import Graph
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.ops.leaf import shape_of
from aneforge.graph.tensor import Tensor
from aneforge.sim.executor import ExecutionPlan, Run, watching
from aneforge.sim.ports import port_numbers
from aneforge.study.model import build
from aneforge.train.backward import Objective, Root, backward_from, loss_of, root_of
from aneforge.train.guard import SliceGuard
from aneforge.train.optimisers import Optimiser, OptimiserState

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class StepResult:
    """What one run of the step program gave, before anybody decided to keep it."""

    loss: float
    parts: Arrays
    """The scaled gradients, or the new values where the engine has the optimiser; user's shapes, or the program's own
    layout where the state is resident."""
    slots: Mapping[str, Arrays]
    finite: bool
    scale: float
    """The loss scale that the gradients carry: the one asked for, but for rounding."""
    run: Run


class StepProgram:
    """The program of a step on one chip, with the names of everything that goes in and comes out."""

    def __init__(
        self,
        objective: Objective,
        optimiser: Optimiser,
        target: Target,
        mode: str,
        data_inputs: Sequence[Tensor] | None,
        on_engine: bool,
    ) -> None:
        loss = loss_of(objective)
        if "live_state" in Graph([loss]).kinds:
            raise GraphError("live_state: a training step keeps no state but the parameters. Make it an input")
        self.root: Root = root_of(objective)
        self.optimiser = optimiser
        self.on_engine = on_engine
        self.factor = graph_input((1,) * self.root.tensor.ndim, name=_own("loss scale"))
        params = optimiser.params
        backward = backward_from(self.root.gradient(self.factor), self.root.tensor, params)
        parts = [backward[param] for param in params]
        self._rates: dict[str, Tensor] = {}
        self._slots: dict[str, list[Tensor]] = {name: [] for name in optimiser.slots}
        outputs = self._with_optimiser(parts) if on_engine else parts
        self.graph = Graph([loss, *outputs])
        self.data: tuple[Tensor, ...] = _data_inputs(data_inputs, Graph([loss]))
        self.model = build(self.graph, target, mode)
        self.program = self.model.program
        self._plan = ExecutionPlan.of(self.program, mode)
        names = self.graph.names()
        self.name_of = {node.uid: names[node.uid] for node in (*self.graph.inputs, *self.graph.parameters)}
        self._ports = {port.name: port for port in self.program.inputs}
        self._outputs = self.program.outputs
        trained = {self.name_of[param.uid] for param in params}
        self._frozen = {
            port.name: port.to_ndchw(port.initial.array)
            for port in self.program.inputs
            if port.initial is not None and port.name not in trained
        }
        """Parameters that are not trained, and what the host draws: the same in every step."""
        self.guard = SliceGuard.of(self.graph, self.factor, self.program, params)

    def _with_optimiser(self, parts: Sequence[Tensor]) -> list[Tensor]:
        optimiser = self.optimiser
        self._rates = {name: graph_input((1,), name=_own(name)) for name in optimiser.rates}
        values: list[Tensor] = []
        after: dict[str, list[Tensor]] = {name: [] for name in optimiser.slots}
        for number, (param, part) in enumerate(zip(optimiser.params, parts, strict=True)):
            before = {
                name: graph_input(shape_of(param.shape), name=_own(f"{name} {number}")) for name in optimiser.slots
            }
            value, slots = optimiser.on_engine(param, part, before, self._rates)
            values.append(value)
            for name in optimiser.slots:
                self._slots[name].append(before[name])
                after[name].append(slots[name])
        return [*values, *(tensor for name in optimiser.slots for tensor in after[name])]

    # Running.

    def run(
        self, arrays: Mapping[str, np.ndarray], state: OptimiserState, lr: float, loss_scale: float, raw: bool
    ) -> StepResult:
        """One step from a state. ``raw``: the state is in the program's own layout, and so is what comes out."""
        feeds = dict(self._frozen)
        feeds |= {name: port_numbers(self._ports[name], array) for name, array in arrays.items()}
        factor, carried = self.root.stored(loss_scale)
        feeds |= self._number(self.factor, factor)
        for param, value in zip(self.optimiser.params, state.values, strict=True):
            self._put(feeds, param, value, raw)
        if self.on_engine:
            for name, rate in self.optimiser.rates_of(state, lr, carried).items():
                feeds |= self._number(self._rates[name], rate)
            for name, tensors in self._slots.items():
                for tensor, value in zip(tensors, state.slots[name], strict=True):
                    self._put(feeds, tensor, value, raw)
        with watching(self.guard.hear) if self.guard.hears else nullcontext():
            done = self._plan.run(feeds)
        outputs = [done.outputs[port.name] for port in self._outputs]
        loss = float(outputs[0].reshape(-1)[0])
        finite = all(_is_finite(array) for array in outputs[1:])
        shaped = outputs[1:]
        if not raw:
            shaped = [port.from_ndchw(array) for port, array in zip(self._outputs[1:], shaped, strict=True)]
        count = len(self.optimiser.params)
        slots = {
            name: tuple(shaped[(place + 1) * count : (place + 2) * count])
            for place, name in enumerate(self.optimiser.slots if self.on_engine else ())
        }
        return StepResult(loss, tuple(shaped[:count]), slots, finite, carried, done)

    def _number(self, port: Tensor, value: float) -> dict[str, np.ndarray]:
        name = self.name_of[port.uid]
        with np.errstate(over="ignore"):
            return {name: np.full(self._ports[name].ndchw_shape, value, np.float16)}

    def _put(self, feeds: dict[str, np.ndarray], tensor: Tensor, value: np.ndarray, raw: bool) -> None:
        name = self.name_of.get(tensor.uid, "")
        port = self._ports.get(name)
        if port is not None:  # a program needs no port for what it does not read
            feeds[name] = value if raw else port.to_ndchw(value)

    def laid_out(self, state: OptimiserState, inward: bool) -> OptimiserState:
        """A state in the program's own layout (``inward``), or back in the user's shapes."""

        def moved(tensor: Tensor, value: np.ndarray) -> np.ndarray:
            port: Port = self._ports[self.name_of[tensor.uid]]
            return port.to_ndchw(value) if inward else port.from_ndchw(value)

        values = tuple(moved(p, v) for p, v in zip(self.optimiser.params, state.values, strict=True))
        slots = {
            name: tuple(moved(tensor, value) for tensor, value in zip(self._slots[name], arrays, strict=True))
            for name, arrays in state.slots.items()
        }
        return OptimiserState(values, slots, state.updates)

    def checked(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The data of a step by the name of their input; refuses a wrong number, shape or value."""
        names = [self.name_of[port.uid] for port in self.data]
        free = [name for name in names if name not in named]
        if len(arrays) != len(free) or any(name not in names for name in named):
            given = [f"{len(arrays)} arrays", *named]
            raise AneforgeError(f"data: {', '.join(given)} were given; a step takes {', '.join(names)}.")
        values = {**dict(zip(free, arrays, strict=True)), **named}
        checked: dict[str, np.ndarray] = {}
        for port in self.data:
            name = self.name_of[port.uid]
            array = np.asarray(values[name])
            if array.shape != port.shape:
                raise AneforgeError(
                    f"{name}: the data have shape {list(array.shape)}; the graph was built for {list(port.shape)}. "
                    "Give batches of that size, or build the graph for another."
                )
            if array.dtype.kind not in "fiub":
                raise AneforgeError(f"{name}: the data are {array.dtype}; give numbers.")
            checked[name] = array
        return checked

    def bytes_per_step(self, resident: bool) -> tuple[int, int]:
        """Bytes that cross to the engine and back in a step; what is resident stays there."""
        kept = {self.name_of[tensor.uid] for tensors in self._slots.values() for tensor in tensors}
        kept |= {self.name_of[param.uid] for param in self.optimiser.params}
        sizes = {name: _bytes(port) for name, port in self._ports.items()}
        inward = sum(size for name, size in sizes.items() if not (resident and name in kept))
        outward = sum(_bytes(port) for port in (self._outputs[:1] if resident else self._outputs))
        return inward, outward


def _own(name: str) -> str:
    """The name of an input that the trainer feeds; no user's name has a slash in front by accident."""
    return f"/train/{name}"


def _bytes(port: Port) -> int:
    return int(np.prod(port.ndchw_shape)) * (1 if port.dtype in ("uint8", "ui8") else 2)


def _data_inputs(wanted: Sequence[Tensor] | None, graph: Graph) -> tuple[Tensor, ...]:
    if wanted is None:
        return graph.inputs
    listed = [wanted] if isinstance(wanted, Tensor) else list(wanted)
    uids = [port.uid for port in listed if isinstance(port, Tensor)]
    expected = {port.uid for port in graph.inputs}
    if len(uids) != len(listed) or len(set(uids)) != len(uids) or set(uids) != expected:
        names = graph.names()
        listing = ", ".join(names[port.uid] for port in graph.inputs) or "none"
        raise GraphError(f"data_inputs: they must be the inputs of the loss, each once: {listing}")
    return tuple(listed)


def _is_finite(array: np.ndarray) -> bool:
    """On the bits: NumPy widens fp16 number by number, which takes longer than the rest of a step."""
    bits = np.ascontiguousarray(array).view(np.uint16)
    return not bits.size or int((bits & 0x7FFF).max()) < 0x7C00
