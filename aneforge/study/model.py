"""``af.compile`` and what it returns: a program with the graph it came from, ready to run and to explain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.chips.chip import Target
from aneforge.compiler.compile import compile_target, overlap_of, resolve_target
from aneforge.compiler.compression import (
    DEFAULT_ATOL,
    DEFAULT_BLOCK,
    Compress,
    Compression,
    CompressionOptions,
    compressed,
)
from aneforge.compiler.cuts import SegmentCut, cuts_of
from aneforge.compiler.listing import Explanation, History
from aneforge.compiler.lower import Port
from aneforge.compiler.lower.builder import layout
from aneforge.compiler.pipeline import OVERLAP
from aneforge.compiler.plan import Segment
from aneforge.compiler.program import Program
from aneforge.compiler.validate import Validator
from aneforge.cost.estimate import APP_SCOPE, warn_dispatch_floor
from aneforge.engine.interpret import interpret, interpreted_names
from aneforge.engine.interpret_units import UNITS
from aneforge.errors import AneforgeError, ArgumentError, UnknownNameError, nearest
from aneforge.formats.arguments import Source, chip_of, graph_of
from aneforge.graph.graph import Graph
from aneforge.graph.node import definitions
from aneforge.graph.tensor import Tensor
from aneforge.numerics.analysis import warn_losses
from aneforge.process import quiet_collector
from aneforge.sim.engine import MODES
from aneforge.sim.executor import ExecutionPlan, Run
from aneforge.sim.fidelity import FIDELITIES, basis
from aneforge.sim.gpu.plan import DevicePlan, check_device, cuda
from aneforge.sim.ports import port_numbers
from aneforge.study.chain import Chain
from aneforge.study.ports import BoundPorts

if TYPE_CHECKING:
    from aneforge.formats.archive import SavedProgram


class Model(BoundPorts):
    """A compiled graph: ``.program`` is what the four phases made, ``.explain()`` says why, and a call simulates it.

    ``mode`` is how: ``exact``, or ``fast`` with single-precision sums. Weights are decoded at the first run.

    A loop that runs often binds arrays to the ports once: write to ``input_view``, call ``execute``, read
    ``output_view``. ``release`` gives the memory back.
    """

    def __init__(self, graph: Graph, program: Program, mode: str = "exact") -> None:
        self.graph = graph
        self.program = program
        self.mode = mode
        self.tuning: Any = None  # how it was chosen, where af.tune made it
        self.compression: Compression | None = None
        """What ``compress`` did with each layer's weight; None where it was not asked for."""
        self.released = False
        self._views: dict[tuple[str, str], np.ndarray] = {}
        self._shared: list[tuple[str, str]] = []
        self._states: dict[str, np.ndarray] = {}  # NDCHW, as the program keeps them

    @staticmethod
    def of(graph: Graph, program: Program, mode: str = "exact") -> Model:
        """The model of a compiled graph: a segmented one where native layers cut the program."""
        native = any(segment.kind == "native" for segment in program.segments)
        return (SegmentedModel if native else Model)(graph, program, mode)

    @cached_property
    def _decoded(self) -> ExecutionPlan:
        return ExecutionPlan.of(self.program, self.mode)

    @property
    def _plan(self) -> ExecutionPlan:
        self._refuse_if_released()
        return self._decoded

    def _refuse_if_released(self) -> None:
        if self.released:
            outputs = ", ".join(port.name for port in self.program.outputs[:4])
            raise AneforgeError(f"{outputs}: the model was released and cannot run. Compile the graph again.")

    def release(self) -> None:
        """Give back the decoded weights and the arrays that are bound to the ports. The model cannot run any more;
        its program, listing and estimate stay. A second call does nothing."""
        self.released = True
        self._views.clear()
        self._shared.clear()
        self._states.clear()
        vars(self).pop("_decoded", None)
        vars(self).pop("_on_device", None)

    # State that lives from call to call.

    def state(self, name: str) -> np.ndarray:
        """What a state of the graph holds now, in its own shape: zeros before the first call."""
        nodes = {node.attrs["name"]: node for node in self.graph.nodes if node.op == "live_state"}
        if name not in nodes:
            near = ", ".join(nodes) or "none"
            raise AneforgeError(f"{name!r}: not a state of the program. Choose one: {near}.")
        shape = nodes[name].shape
        port = Port(name, shape, layout(shape), "f16")
        kept = self._states.get(name)
        return np.zeros(shape, np.float16) if kept is None else port.from_ndchw(kept).copy()

    def reset(self) -> None:
        """Set every state back to zeros."""
        self._states.clear()

    @property
    def target(self) -> Target:
        """The chip that the model was compiled for."""
        return self.program.target

    @property
    def route(self) -> str:
        """How the program reaches the chip: ``conversion``, or ``direct`` (authored layers) below A13."""
        return self.program.route

    @property
    def n_ops(self) -> int:
        """Backend ops in the program."""
        return self.program.stats["ops"]

    def save(self, path: str | Path) -> None:
        """Write the compiled model to a file, by its ending: ``.anef`` is aneforge's archive, which
        ``af.load_program`` reads back with everything; ``.hwx`` is the engine's own container, as far as its words are
        published (``codegen.emit``)."""
        ending = Path(path).suffix.casefold()
        if ending == ".anef":
            from aneforge.formats.archive import save_program

            save_program(self._saved, path)
        elif ending == ".hwx":
            from aneforge.codegen.emission import emit

            emit(self.program).write(path)
        else:
            raise ArgumentError("path", f"{Path(path).name!r} has no known ending; choose one: .anef, .hwx.")

    @property
    def _saved(self) -> SavedProgram:
        from aneforge.formats.archive import SavedProgram

        return SavedProgram(self.graph, self.program, self.mode)

    def estimate(self, scope: str = APP_SCOPE) -> Any:
        """How long a call takes on the target: microseconds by layer, an interval, and what they rest on."""
        from aneforge.cost.estimate import estimate_program

        return estimate_program(self.program, scope)

    def explain(self, node: str | None = None) -> Any:
        """Why each node became what it is, pass by pass; one node's story by its name."""
        history = History()
        overlap = any(entry.name in OVERLAP for entry in self.program.log)
        program = compile_target(self.graph, self.target, history, self.route, overlap)
        story = Explanation(self.graph, program, history)
        return story if node is None else story[node]

    def chain(self) -> Chain:
        """What every phase changed in the code, the schedule, the memory map and the task words, in one place."""
        return Chain.of(self.graph, self.program)

    def reference(self, *arrays: np.ndarray, **named: np.ndarray) -> Any:
        """What the compiled program means in float64, before any engine rounds a number: one array, or a list."""
        self._refuse_if_released()
        values = interpret(self.program.module, self._feeds(self._by_name(arrays, named)))
        results = [port.from_ndchw(values[port.name]) for port in self.program.outputs]
        return results[0] if len(results) == 1 else results

    def _feeds(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Every input laid out as the program takes it; a parameter that is not given has its start value, and a state
        what the last call left."""
        feeds = dict(self._states)
        for port in self.program.inputs:
            value = arrays.get(port.name, None if port.initial is None else port.initial.array)
            if value is None:
                names = ", ".join(known.name for known in self.program.inputs)
                raise AneforgeError(f"{port.name}: this input has no value. The program takes {names}.")
            feeds[port.name] = port_numbers(port, value)
        return feeds

    def _by_name(self, arrays: Sequence[np.ndarray], named: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        free = [port.name for port in self.program.inputs if port.initial is None and port.name not in named]
        if len(arrays) > len(free):
            raise AneforgeError(f"inputs: {len(arrays)} were given; the program takes {', '.join(free) or 'no more'}.")
        known = [port.name for port in self.program.inputs]
        unknown = [name for name in named if name not in known]
        if unknown:
            raise AneforgeError(f"{unknown[0]}: not an input of the program. Choose from: {', '.join(known)}.")
        return {**dict(zip(free, arrays, strict=False)), **named}

    def run(self, feeds: Mapping[str, np.ndarray], trace: bool = False) -> Run:
        """Simulate on inputs by name. The outputs are fp16 in the user's shapes; ``trace`` keeps every intermediate
        (NDCHW) with its layer, the user's nodes and how far it can be trusted."""
        done = self._plan.run(self._feeds(self._by_name((), dict(feeds))), trace)
        self._states.update(done.states)
        return self._in_user_shapes(done)

    def run_fast(self, feeds: Mapping[str, np.ndarray]) -> Run:
        """Simulate once in the fast mode, whatever the mode of the model."""
        self._refuse_if_released()
        plan = ExecutionPlan.of(self.program, "fast")
        return self._in_user_shapes(plan.run(self._feeds(self._by_name((), dict(feeds)))))

    def _in_user_shapes(self, done: Run) -> Run:
        done.outputs = {port.name: port.from_ndchw(done.outputs[port.name]) for port in self.program.outputs}
        return done

    def batch(
        self,
        feeds: Mapping[str, np.ndarray] | Iterable[Mapping[str, np.ndarray]],
        trace: bool = False,
        device: str = "cpu",
    ) -> Iterator[Run]:
        """Simulate on many inputs: arrays by name with one more axis in front, or samples one at a time, which are
        read as they are needed. Runs come in order, as they are done, and each has the bits it would have alone;
        several are under way at a time where there are CPUs for them. With ``device="cuda"`` a GPU runs them, 64 at a
        time, with the same bits; ``on_cpu`` says which ops it left to the CPU, and no run says which layer was the
        first that is not finite."""
        plan = self._plan
        check_device(device)
        if isinstance(feeds, Mapping):
            samples = self._rows(self._by_name((), {str(name): array for name, array in feeds.items()}))
        else:
            samples = (self._by_name((), dict(sample)) for sample in feeds)
        if any(op.kind == "state" for op in self.program.module.ops):  # each run starts with what the last one left
            return (self.run(sample, trace) for sample in samples)
        laid_out = (self._feeds(sample) for sample in samples)
        if device != "cpu":
            if trace:
                raise ArgumentError("trace", "a GPU keeps no trace. Leave it out, or use device='cpu'.")
            return (self._in_user_shapes(done) for done in self._on_device.run_each(laid_out))
        return (self._in_user_shapes(done) for done in plan.run_each(laid_out, trace))

    @cached_property
    def _on_device(self) -> DevicePlan:
        return DevicePlan(self._plan, cuda())

    @property
    def on_cpu(self) -> dict[str, int]:
        """The ops that a GPU leaves to the CPU, by kind; empty before ``batch`` has used one."""
        plan = self.__dict__.get("_on_device")
        return {} if plan is None else dict(plan.on_cpu)

    @staticmethod
    def _rows(feeds: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
        """The samples of arrays whose first axis counts them."""
        arrays = {name: np.asarray(array) for name, array in feeds.items()}
        if not arrays:
            raise AneforgeError("inputs: a batch needs at least one input, whose first axis counts the runs.")
        counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
        if len(set(counts.values())) != 1:
            lengths = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise AneforgeError(f"inputs: a batch needs one length along the first axis of all inputs, not {lengths}.")
        count = next(iter(counts.values()))
        return ({name: array[place] for name, array in arrays.items()} for place in range(count))

    def __call__(self, *arrays: np.ndarray, dtype: str = "float32", **named: np.ndarray) -> Any:
        """The numbers the chip would give, simulated exactly where silicon says how: fp16 values, returned as float32
        unless ``dtype`` says otherwise; one array, or a list where the model has several outputs."""
        outputs = self.run(self._by_name(arrays, named)).outputs
        results = [value if value.dtype == bool else value.astype(dtype) for value in outputs.values()]
        return results[0] if len(results) == 1 else results

    def to_json(self) -> dict[str, Any]:
        """The program as plain data: segments, layers, buffers, weights and passes."""
        return self.program.to_json()

    def __str__(self) -> str:
        return str(self.program)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.program!r}>"


class SegmentedModel(Model):
    """A model that native layers cut into several dispatches. ``cuts`` says where."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The dispatches in order: each native layer is one, and so is what lies between two of them."""
        return self.program.segments

    @cached_property
    def cuts(self) -> tuple[SegmentCut, ...]:
        """Each native layer: its type, the nodes it is for, and what crosses into and out of its segment."""
        return cuts_of(self.program)

    @property
    def n_netplist(self) -> int:
        """How many segments are native layers."""
        return len(self.cuts)


class MultiModel(Model):
    """A model with several named outputs: a call returns a dictionary."""

    def __init__(self, graph: Graph, program: Program, keys: Sequence[str], mode: str = "exact") -> None:
        super().__init__(graph, program, mode)
        self.keys: tuple[str, ...] = tuple(keys)
        """The names of the outputs, in order: the keys of what a call gives."""

    @property
    def output_ports(self) -> tuple[tuple[Tensor, str], ...]:
        """Each output as the tensor of the graph and its name."""
        return tuple(zip(self.graph.outputs, self.keys, strict=True))

    @property
    def _saved(self) -> SavedProgram:
        return replace(super()._saved, keys=self.keys)

    def output_view(self, which: int | str = 0) -> np.ndarray:
        """As for :class:`Model`; by the names that ``keys`` has."""
        known = isinstance(which, str) and which in self.keys
        return super().output_view(self.keys.index(which) if known else which)

    def __call__(self, *arrays: np.ndarray, dtype: str = "float32", **named: np.ndarray) -> dict[str, np.ndarray]:
        """The numbers the chip would give, by the name of the output."""
        outputs = super().__call__(*arrays, dtype=dtype, **named)
        results = outputs if isinstance(outputs, list) else [outputs]
        return dict(zip(self.keys, results, strict=True))


def compile(  # noqa: A001 - the name users call
    out: Source,
    int8: bool = False,
    build_dir: str | Path | None = None,
    opt: str | int | None = "routes",
    compress: Compress = None,
    compress_atol: float = DEFAULT_ATOL,
    block_size: int = DEFAULT_BLOCK,
    validate: bool = False,
    target: str | int | Target | None = None,
    _check_precision: bool = True,
    mode: str = "exact",
    route: str | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> Model:
    """Compile a model for one chip.

    ``out`` is a graph, its output tensors, a compiled model, or the path of a model file, which ``dims`` and
    ``function`` go with (see ``af.load``). ``target`` is any chip's or target's name, a five-tier family, or None for
    the host; ``af.compile_all`` takes several. ``validate`` runs the float64 interpreter before and
    after every pass and names the pass that changes a result. ``build_dir`` receives the listing, the program as JSON,
    the backend code and, with coremltools, ``model.mil`` and ``weights.bin``. What the chip cannot take raises
    :class:`CompileError`. ``mode`` is how the model runs when it is called: ``exact``, to the bit where silicon says
    how, or ``fast``.

    ``opt`` is how much the schedule may do. ``"routes"`` and 1 are the same: the form of every op is chosen from the
    facts of the chip, and layers overlap (chains inside L2, pairs on two engines). 0 and None choose the same forms
    and let no layers overlap: the same numbers, more time and memory, for looking at one layer at a time. No level
    searches among equal forms of a graph; ``af.tune`` does.

    ``route`` is how the program reaches the chip: ``conversion``, ``direct`` (authored layers), or None for direct
    where the model is a netplist or the chip is below A13, where nothing is converted, and conversion otherwise;
    ``model.route`` says which it was.

    ``compress`` stores the weights in another form: ``int8``, ``int4`` (a table of 16 numbers), ``sparse``,
    ``blockwise`` (a scale for each ``block_size`` inputs) or any other of ``aneforge.graph.codecs.ENCODINGS``. These
    encode every kernel, whether the chip streams the form or folds it back to fp16. ``auto`` takes for each layer the
    smallest form that the chip streams and whose outputs are within ``compress_atol`` (their error's root mean square
    over the largest output; U115), else fp16. A mapping has a mode for each node by its name or a pattern: ``{"head":
    None, "*": "int8"}``. ``int8=True`` is ``compress="int8"``. Weights that came encoded stay as they are.
    ``model.compression`` says what was done.

    Warnings: :class:`PrecisionWarning` where the graph shows numbers that fp16 may lose, or a rule knows wrong
    results on the chip (not with ``_check_precision=False``), :class:`CrossChipFP16Warning` where a slice clamps,
    :class:`DispatchFloorWarning` where a call is hardly more than its dispatch.
    """
    options = CompressionOptions.of(int8, compress, compress_atol, block_size)
    graph, chip = graph_of(out, dims, function), chip_of(target, out)
    with quiet_collector():
        model = _build_compressed(graph, chip, options, mode, opt, route, validate)
        warn_of(model, _check_precision, stacklevel=4)
    if build_dir is not None:
        _write_build(model, build_dir)
    return model


def compile_multi(
    outs: Mapping[str, Tensor] | Source,
    int8: bool = False,
    build_dir: str | Path | None = None,
    opt: str | int | None = "routes",
    compress: Compress = None,
    compress_atol: float = DEFAULT_ATOL,
    block_size: int = DEFAULT_BLOCK,
    validate: bool = False,
    target: str | int | Target | None = None,
    _check_precision: bool = True,
    mode: str = "exact",
    route: str | None = None,
) -> MultiModel:
    """Compile several outputs into one program; a call gives them by name.

    ``outs`` is a mapping of names to tensors, or a sequence of tensors, which go by their own names. Everything else
    is as for :func:`compile`.
    """
    options = CompressionOptions.of(int8, compress, compress_atol, block_size)
    named = isinstance(outs, Mapping)
    graph = graph_of(list(outs.values()) if named else outs)
    model = _build_compressed(graph, chip_of(target, outs), options, mode, opt, route, validate)
    keys = [str(key) for key in outs] if named else [port.name for port in model.program.outputs]
    if len(set(keys)) != len(keys):
        raise AneforgeError(f"outs: outputs are called {', '.join(keys)}; give each a name of its own")
    warn_of(model, _check_precision, stacklevel=4)
    if build_dir is not None:
        _write_build(model, build_dir)
    several = MultiModel(model.graph, model.program, keys, mode)
    several.compression = model.compression
    return several


def _write_build(model: Model, folder: str | Path) -> None:
    from aneforge.study.exporting import write_build_of  # it writes models, and imports this module

    write_build_of(model, folder)


def _build_compressed(
    graph: Graph, target: str | int | Target | None, options: CompressionOptions | None, *settings: Any
) -> Model:
    """``build`` with the weights in the forms that the options ask for."""
    if options is None:
        return build(graph, target, *settings)
    chip = resolve_target(target)
    stored, report = compressed(graph, chip, options)
    model = build(stored, chip, *settings)
    model.compression = report
    return model


def build(
    out: Tensor | Sequence[Tensor] | Graph,
    target: str | int | Target | None = None,
    mode: str = "exact",
    opt: str | int | None = "routes",
    route: str | None = None,
    validate: bool = False,
) -> Model:
    """``compile`` without warnings and files: for graphs that are not the user's own."""
    if mode not in MODES:
        raise ArgumentError("mode", f"{mode!r} is not a mode; choose one: {', '.join(MODES)}.")
    overlap = overlap_of(opt)
    graph = Graph.of(out)
    program = compile_target(graph, resolve_target(target), Validator() if validate else None, route, overlap)
    return Model.of(graph, program, mode)


def warn_of(model: Model, check_precision: bool = True, stacklevel: int = 4, times: bool = True) -> None:
    """What the user should know of a model before running it. ``stacklevel`` 4 is the line that called the caller;
    ``times`` warns of calls that are hardly more than their dispatch."""
    warn_losses(model.graph, model.program, stacklevel, check_precision)
    if times:
        warn_dispatch_floor(model.program, stacklevel)


_BUILT = {"conv": "convolution", "conv_transpose": "deconvolution", "avg_pool": "average_pool"}
"""Graph ops whose backend op is built by more than a row of their declaration."""


def _backend_kind(name: str) -> str:
    """The backend's name of an op that may have the graph's."""
    declared = definitions().get(name)
    row = None if declared is None else declared.in_backend
    return _BUILT.get(name, name) if row is None else row.name


def fidelity(op: str | Tensor | Graph, target: str | int | Target | None = None) -> str:
    """How far simulated numbers can be trusted: ``exact``, ``modelled`` or ``assumed``.

    ``op`` is the name of an op, the backend's (``reduce_avg``) or the graph's where one stands for the other
    (``mean``) or a native layer's type (``unit:TopK``), or a graph, whose program is as good as its weakest op.
    """
    chip = resolve_target(target)
    if not isinstance(op, str):
        labels = ExecutionPlan.of(compile_target(Graph.of(op), chip)).fidelity
        return max(labels, key=FIDELITIES.index, default="exact")
    kind = op.removeprefix("anec.") if op.startswith("anec.") else _backend_kind(op)
    if f"anec.{kind}" not in interpreted_names() and kind.removeprefix("unit:") not in UNITS:
        near = ", ".join(nearest(kind, [name.removeprefix("anec.") for name in interpreted_names()]))
        hint = f"nearest: {near}" if near else "see 'aneforge opt'"
        raise UnknownNameError(f"{op}: not a backend op ({hint}). For an op that becomes several, pass its graph.")
    return basis(kind, chip)
