"""``af.compile`` and what it returns: a program with the graph it came from, ready to run and to explain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.anec.interpret import interpret, interpreted_names
from aneforge.anec.interpret_units import UNITS
from aneforge.compiler.compile import (
    compile_target,
    refuse_options,
    resolve_target,
    write_build,
)
from aneforge.compiler.explain import Explanation, History
from aneforge.compiler.program import Program
from aneforge.compiler.validate import Validator
from aneforge.divergence.warned import warn_slices
from aneforge.errors import AneforgeError, UnknownNameError, nearest
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.sim.engine import MODES
from aneforge.sim.executor import Plan, Run
from aneforge.sim.fidelity import FIDELITIES, basis
from aneforge.targets.chip import Target

__all__ = ["Model", "SegmentedModel", "compile", "fidelity"]


class Model:
    """A compiled graph: ``.program`` is what the four phases made, ``.explain()`` says why, and a call simulates it.

    ``fidelity`` is how: ``exact``, or ``fast`` with single-precision sums. Weights are decoded at the first run.
    """

    def __init__(self, graph: Graph, program: Program, fidelity: str = "exact") -> None:
        self.graph = graph
        self.program = program
        self.fidelity = fidelity
        self.tuning: Any = None  # how it was chosen, where af.tune made it

    @cached_property
    def _plan(self) -> Plan:
        return Plan.of(self.program, self.fidelity)

    @property
    def target(self) -> Target:
        return self.program.target

    @property
    def n_ops(self) -> int:
        """Backend ops in the program."""
        return self.program.stats["ops"]

    def estimate(self, scope: str = "coreml_call") -> Any:
        """How long a call takes on the target: microseconds by layer, an interval, and what they rest on."""
        from aneforge.cost.estimate import estimate_program

        return estimate_program(self.program, scope)

    def explain(self, node: str | None = None) -> Any:
        """Why each node became what it is, pass by pass; one node's story by its name."""
        history = History()
        program = compile_target(self.graph, self.target, watch=history)
        told = Explanation(self.graph, program, history)
        return told if node is None else told[node]

    def reference(self, *arrays: np.ndarray, **named: np.ndarray) -> Any:
        """What the compiled program means in float64, before any engine rounds a number: one array, or a list."""
        found = interpret(self.program.module, self._feeds(self._given(arrays, named)))
        results = [port.from_ndchw(found[port.name]) for port in self.program.outputs]
        return results[0] if len(results) == 1 else results

    def _feeds(self, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Every input laid out as the program takes it; a parameter that is not given has its start value."""
        feeds = {}
        for port in self.program.inputs:
            value = given.get(port.name, None if port.initial is None else port.initial.array)
            if value is None:
                names = ", ".join(each.name for each in self.program.inputs)
                raise AneforgeError(f"no value for input {port.name!r}; the program takes {names}")
            try:
                given_as = np.asarray(value)
                numbers = given_as if given_as.dtype.kind == "f" else given_as.astype(np.float64)
            except (TypeError, ValueError) as error:
                raise AneforgeError(f"input {port.name!r} takes numbers: {error}") from None
            feeds[port.name] = port.to_ndchw(numbers)
        return feeds

    def _given(self, arrays: Sequence[np.ndarray], named: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        free = [port.name for port in self.program.inputs if port.initial is None and port.name not in named]
        if len(arrays) > len(free):
            raise AneforgeError(f"the program takes {', '.join(free) or 'no more inputs'}, {len(arrays)} were given")
        known = [port.name for port in self.program.inputs]
        unknown = [name for name in named if name not in known]
        if unknown:
            raise AneforgeError(f"no input {unknown[0]!r}; the program takes {', '.join(known)}")
        return {**dict(zip(free, arrays, strict=False)), **named}

    def run(self, feeds: Mapping[str, np.ndarray], trace: bool = False) -> Run:
        """Simulate on inputs by name. The outputs are fp16 in the user's shapes; ``trace`` keeps every intermediate
        (NDCHW) with its layer, the user's nodes and how far it can be trusted."""
        return self._told(self._plan.run(self._feeds(self._given((), dict(feeds))), trace))

    def _told(self, done: Run) -> Run:
        done.outputs = {port.name: port.from_ndchw(done.outputs[port.name]) for port in self.program.outputs}
        return done

    def batch(self, feeds: Mapping[str, np.ndarray], trace: bool = False) -> Iterator[Run]:
        """Simulate on many inputs: arrays by name with one more axis in front. Runs come in order, as they are done,
        and each has the bits it would have alone; several are under way at a time where there are CPUs for them."""
        given = {name: np.asarray(array) for name, array in self._given((), dict(feeds)).items()}
        if not given:
            raise AneforgeError("a batch needs at least one input to count its runs by")
        counts = {name: len(array) if array.ndim else 0 for name, array in given.items()}
        if len(set(counts.values())) != 1:
            told = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise AneforgeError(f"the inputs of a batch have one length along their first axis, not {told}")
        count = next(iter(counts.values()))
        each = (self._feeds({name: array[place] for name, array in given.items()}) for place in range(count))
        return (self._told(done) for done in self._plan.run_each(each, trace))

    def __call__(self, *arrays: np.ndarray, dtype: str = "float32", **named: np.ndarray) -> Any:
        """The numbers the chip would give, simulated exactly where silicon says how: fp16 values, held as float32
        unless ``dtype`` says otherwise; one array, or a list where the model has several outputs."""
        outputs = self.run(self._given(arrays, named)).outputs
        results = [value if value.dtype == bool else value.astype(dtype) for value in outputs.values()]
        return results[0] if len(results) == 1 else results

    def __str__(self) -> str:
        return str(self.program)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.program!r}>"


class SegmentedModel(Model):
    """A model that native layers cut into several dispatches."""

    @property
    def n_netplist(self) -> int:
        """How many segments are native layers."""
        return sum(segment.kind == "native" for segment in self.program.segments)


def compile(  # noqa: A001 - the name users call
    out: Tensor | Sequence[Tensor] | Graph,
    int8: bool = False,
    build_dir: str | Path | None = None,
    opt: str = "routes",
    compress: str | None = None,
    compress_atol: float = 0.05,
    block_size: int = 32,
    validate: bool = False,
    target: str | int | Target | None = None,
    _check_precision: bool = True,
    fidelity: str = "exact",
) -> Model:
    """Compile a graph for one chip.

    ``target`` is any chip's or target's name, a five-tier family, or None for the host. ``validate`` runs the float64
    interpreter before and after every pass and names the pass that changes a result. ``build_dir`` receives the
    listing, the program as JSON and the backend code. What the chip cannot take raises :class:`CompileError`.
    ``fidelity`` is how the model runs when it is called: ``exact``, to the bit where silicon says how, or ``fast``.
    """
    if fidelity not in MODES:
        raise AneforgeError(f"fidelity is {fidelity!r}: say one of {', '.join(MODES)}")
    refuse_options(int8, compress, opt)
    graph = Graph.of(out)
    chip = resolve_target(target)
    warn_slices(graph, chip, stacklevel=3)
    program = compile_target(graph, chip, watch=Validator() if validate else None)
    if build_dir is not None:
        write_build(program, build_dir)
    native = any(segment.kind == "native" for segment in program.segments)
    return (SegmentedModel if native else Model)(graph, program, fidelity)


# Names that graphs have for what the backend calls otherwise.
_BACKEND_NAMES = {
    **{"conv": "convolution", "conv_transpose": "deconvolution", "mul": "mult", "real_div": "div", "exp": "exp2"},
    **{
        "log": "log2",
        "rsqrt": "r_sqrt",
        "inverse": "invert",
        "silu": "swish",
        "sum": "reduce_sum",
        "mean": "reduce_avg",
    },
    **{"avg_pool": "average_pool", "maximum": "max", "minimum": "min", "round": "round_nearest"},
}


def fidelity(op: str | Tensor | Graph, target: str | int | Target | None = None) -> str:
    """How far simulated numbers can be trusted: ``exact``, ``modelled`` or ``assumed``.

    ``op`` is the name of an op, the backend's (``reduce_avg``) or the graph's where one stands for the other
    (``mean``) or a native layer's type (``unit:TopK``), or a graph, whose program is as good as its weakest op.
    """
    chip = resolve_target(target)
    if not isinstance(op, str):
        found = Plan.of(compile_target(Graph.of(op), chip)).fidelity
        return max(found, key=FIDELITIES.index, default="exact")
    kind = op.removeprefix("anec.")
    kind = _BACKEND_NAMES.get(kind, kind)
    if f"anec.{kind}" not in interpreted_names() and kind.removeprefix("unit:") not in UNITS:
        near = ", ".join(nearest(kind, [name.removeprefix("anec.") for name in interpreted_names()]))
        hint = f"nearest: {near}" if near else "see 'aneforge opt'"
        raise UnknownNameError(f"no backend op {op!r} ({hint}); for an op that becomes several, pass its graph")
    return basis(kind, chip)
