"""The value of each of the user's nodes in a run: the lineage of the program, read with the numbers of a trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from aneforge.compiler.lower import Port
from aneforge.compiler.program import Program
from aneforge.engine.lineage import Standing
from aneforge.sim.executor import Run
from aneforge.sim.rules.moves import moving, without_nan

Array = np.ndarray


def node_order(program: Program) -> dict[str, int]:
    """The nodes whose value is in a program, in its order, each with the place of the op that completes it."""
    places = {op.uid: place for place, op in enumerate(program.module.ops)}
    completed_at = {
        name: max((places[op.uid] for op in standing.ops()), default=-1)
        for name, standing in program.lineage.items()
        if standing.reason is None
    }
    return dict(sorted(completed_at.items(), key=lambda item: item[1]))


class NodeValues(Mapping[str, Array]):
    """Arrays in the user's shapes, by node. A value that was moved on the way is moved back when it is read."""

    def __init__(self, program: Program, run: Run) -> None:
        self._program = program
        self._lineage = {name: standing for name, standing in program.lineage.items() if standing.reason is None}
        self._run = run

    def __getitem__(self, name: str) -> Array:
        standing = self._lineage[name]
        value = standing.value(lambda op: self._run.values[op.uid], lambda move, parts: moving(move)(*parts))
        return without_nan(_user_shaped(standing, value))

    def completed_by(self) -> dict[str, str]:
        """Nodes that compute something, in the order of the program, each with the backend op that completes it."""
        ports = {port.name for port in self._program.inputs}
        names = (name for name in node_order(self._program) if name not in ports)
        return {name: list(self._lineage[name].ops())[-1].kind for name in names}

    def __iter__(self) -> Iterator[str]:
        return iter(self._lineage)

    def __len__(self) -> int:
        return len(self._lineage)


def _user_shaped(standing: Standing, value: Array) -> Array:
    assert standing.shape is not None
    return Port("", standing.shape, value.shape, "").from_ndchw(value)
