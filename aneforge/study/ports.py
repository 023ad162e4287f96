"""Arrays that are bound to the ports of a compiled model, for loops that run it often."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from aneforge.compiler.lower import Port
from aneforge.compiler.program import Program
from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.sim.executor import Run
from aneforge.sim.ports import input_array, output_array


class BoundPorts(ABC):
    """Write to ``input_view``, call ``execute``, read ``output_view``."""

    graph: Graph
    program: Program
    _views: dict[tuple[str, str], np.ndarray]
    _shared: list[tuple[str, str]]

    @abstractmethod
    def run(self, feeds: Mapping[str, np.ndarray]) -> Run:
        """Simulate on inputs by name."""

    @abstractmethod
    def _refuse_if_released(self) -> None: ...

    @property
    def prog(self) -> BoundPorts:
        """What existing code calls ``set_input``, ``execute`` and ``read_output`` of: the model itself."""
        return self

    @property
    def input_ports(self) -> tuple[tuple[Tensor, str], ...]:
        """Each input of the program, parameters too, as the tensor of the graph and its name."""
        names = self.graph.names()
        tensors = {names[node.uid]: node for node in (*self.graph.inputs, *self.graph.parameters)}
        return tuple((tensors[port.name], port.name) for port in self.program.inputs if port.name in tensors)

    def input_view(self, which: int | str = 0) -> np.ndarray:
        """The array that ``execute`` reads for one input, by name or by its place among the inputs of a call.

        It has the user's shape and the port's own type (float16, or uint8 for an image), holds zeros at first, and is
        the same array every time: write into it (``view[...] = frame``). A uint8 view refuses what the port cannot
        hold. A parameter is reached by its name and holds its start value.
        """
        self._refuse_if_released()
        by_place = [port for port in self.program.inputs if port.initial is None]
        return self._view("input", _port_named(which, self.program.inputs, by_place, "input"))

    def output_view(self, which: int | str = 0) -> np.ndarray:
        """The array that ``execute`` fills for one output, by name or place: the user's shape, float16 (bool for truth
        values), the same array every time. It is read-only."""
        self._refuse_if_released()
        view = self._view("output", _port_named(which, self.program.outputs, self.program.outputs, "output"))
        shown = view.view()
        shown.flags.writeable = False
        return shown

    def set_input(self, name: str, array: np.ndarray) -> None:
        """Write one input, by name, for the next ``execute``."""
        self.input_view(name)[...] = array

    def read_output(self, name: str) -> np.ndarray:
        """A copy of what the last ``execute`` gave for one output, by name."""
        return self.output_view(name).copy()

    def share_buffer(self, source_op: int, output: str, destination_op: int, input: str) -> None:  # noqa: A002
        """Let an input start each ``execute`` with what an output held after the one before: state that stays on the
        engine. Both numbers of ops are 0, as a model is one program."""
        for number in (source_op, destination_op):
            if number != 0:
                raise AneforgeError(f"share_buffer: op {number}: the model is one program; give 0.")
        given, taken = self.output_view(output), self.input_view(input)
        if given.shape != taken.shape:
            raise AneforgeError(
                f"share_buffer: {output} is {list(given.shape)}, {input} {list(taken.shape)}; they must be equal."
            )
        self._shared.append((output, input))

    def _view(self, side: str, port: Port) -> np.ndarray:
        make = input_array if side == "input" else output_array
        if (side, port.name) not in self._views:
            self._views[side, port.name] = make(port)
        return self._views[side, port.name]

    def execute(self) -> None:
        """Run on what the input views hold, and fill the output views. The numbers are those of a call."""
        self._refuse_if_released()
        feeds = {port.name: self._view("input", port) for port in self.program.inputs}
        done = self.run({name: np.asarray(array) for name, array in feeds.items()})
        for port in self.program.outputs:
            np.copyto(self._view("output", port), done.outputs[port.name])
        for output, name in self._shared:
            self.set_input(name, self.output_view(output))


def _port_named(which: int | str, ports: Sequence[Port], by_place: Sequence[Port], side: str) -> Port:
    if isinstance(which, str):
        named_port = next((port for port in ports if port.name == which), None)
    else:
        place = operator.index(which) if hasattr(which, "__index__") else len(by_place)
        named_port = by_place[place] if -len(by_place) <= place < len(by_place) else None
    if named_port is None:
        names = ", ".join(f"{place} {port.name}" for place, port in enumerate(by_place))
        raise AneforgeError(f"{which!r}: not an {side} of the program. Choose one: {names or 'none'}.")
    return named_port
