"""The program: what the four phases decided, as everything downstream reads it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import isinf
from typing import Any

from aneforge.anec.ir import Module, Op, TensorType
from aneforge.anec.text import write
from aneforge.compiler.facts import facts_of
from aneforge.compiler.legalise.segments import is_bridge
from aneforge.compiler.lower import Port
from aneforge.compiler.memory.allocation import Allocation
from aneforge.compiler.memory.kernels import stored_size
from aneforge.compiler.passes import PASSES, PassLog
from aneforge.compiler.schedule.layers import Layer, LayerGraph
from aneforge.compiler.schedule.partitions import budget, steps_of
from aneforge.targets.chip import Target
from aneforge.targets.evidence import Fact

__all__ = ["Program", "ProgramBuffer", "ProgramLayer", "ProgramPartition", "ProgramSegment", "ProgramWeight", "Slot"]


@dataclass(frozen=True)
class Slot:
    """One op that an engine layer has absorbed."""

    name: str
    op: str
    attrs: dict[str, Any]
    sources: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}:{self.op}"


class ProgramLayer:
    """One engine layer of the schedule. ``number`` is its place in the schedule."""

    def __init__(self, program: Program, number: int, layer: Layer) -> None:
        self._program = program
        self._layer = layer
        self.number = number

    @property
    def op(self) -> str:
        """The backend op that the layer is built around: ``convolution``."""
        return self._layer.primary.kind

    @property
    def attrs(self) -> dict[str, Any]:
        return self._layer.primary.attrs

    @property
    def ops(self) -> list[Op]:
        """The op itself and those in its slots, in the order in which they act."""
        return self._layer.ops

    @property
    def engine(self) -> str:
        """NE, PE, TE, DMA, or view where nothing has to be done."""
        return self._layer.engine

    @property
    def slots(self) -> tuple[Slot, ...]:
        """What it has absorbed, in slot order (listing 22.3)."""
        return tuple(Slot(op.slot or "", op.kind, op.attrs, op.sources) for op in self._layer.ops[1:])

    @property
    def sources(self) -> tuple[str, ...]:
        """The user's nodes behind it, each once."""
        return tuple(dict.fromkeys(source for op in self._layer.ops for source in op.sources))

    @property
    def labels(self) -> dict[str, Any]:
        """Everything that phases 2 to 4 wrote beside it."""
        return self._layer.primary.labels

    @property
    def segment(self) -> int:
        return self._layer.segment

    @property
    def partition(self) -> int:
        return self.labels["partition"]

    @property
    def allocation(self) -> Allocation:
        """The state of its result (table 22.2)."""
        return Allocation(self.labels["allocation"])

    @property
    def chained(self) -> bool:
        """Whether its result feeds the next layer inside L2."""
        return "chained" in self.labels

    @property
    def co_issue(self) -> int | None:
        """The layer of the other engine that runs beside it."""
        partner = self.labels.get("co_issue")
        return None if partner is None else self._program.place_of(partner)

    @property
    def type(self) -> TensorType:
        """Its result, NDCHW."""
        assert self._layer.result.type is not None
        return self._layer.result.type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def inputs(self) -> tuple[int | str, ...]:
        """What it reads: earlier layers by number, the program's inputs by name."""
        return tuple(self._program.name_of(value) for value in self._layer.inputs)

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        return tuple(value.type for value in self._layer.inputs if value.type is not None)

    @property
    def weights(self) -> tuple[str, ...]:
        """Keys of the stored constants it reads."""
        return tuple(dict.fromkeys(op.attrs["weight"] for op in self._layer.weights))

    @property
    def buffer(self) -> ProgramBuffer:
        return self._program.buffer_of(self._layer)

    def to_json(self) -> dict[str, Any]:
        record: dict[str, Any] = {
            "number": self.number,
            "op": self.op,
            "engine": self.engine,
            "segment": self.segment,
            "partition": self.partition,
            "allocation": int(self.allocation),
            "inputs": list(self.inputs),
            "result": {"shape": list(self.shape), "dtype": self.type.dtype},
            "buffer": self.buffer.number,
            "sources": list(self.sources),
            "attrs": _plain(self.attrs),
        }
        if self.slots:
            record["slots"] = [{"slot": each.name, "op": each.op, "attrs": _plain(each.attrs)} for each in self.slots]
        if self.weights:
            record["weights"] = list(self.weights)
        extra = ("route", "storage", "large_kernel", "piece", "chained", "buffer_offset")
        record |= {name: self.labels[name] for name in extra if name in self.labels}
        if self.co_issue is not None:
            record["co_issue"] = self.co_issue
        return record

    def __str__(self) -> str:
        absorbed = "".join(f" + {slot.op}" for slot in self.slots)
        return f"{self.number} {self.engine} {self.op}{absorbed}"

    def __repr__(self) -> str:
        return f"<layer {self}>"


@dataclass(frozen=True)
class ProgramBuffer:
    """One stretch of memory: where it lies, how its rows are spaced, and from which step to which it is needed."""

    number: int
    space: str
    """``l2``, ``dram``, or ``port`` where the caller owns it."""
    address: int | None
    bytes: int
    row_stride: int
    live: tuple[int, int]
    partition: int | None
    """The partition whose L2 it lies in; None outside L2."""
    values: tuple[int | str, ...]
    """The layers whose results lie in it, and the program's inputs by name."""

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "live": list(self.live), "values": list(self.values)}


@dataclass(frozen=True)
class ProgramWeight:
    """One stored constant: which layers read it, how large it is, and how it reaches the engine."""

    key: str
    sources: tuple[str, ...]
    shape: tuple[int, ...]
    encoding: str
    bytes: int
    stored_bytes: int
    """With the copies that a chip without shared kernel memory needs."""
    address: int
    flow: str | None
    """``stream`` or ``fold`` for kernels, None for biases, gains and other coefficients."""
    path: str | None
    """``replicated`` per core or ``shared`` (listing 35.2)."""

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "sources": list(self.sources), "shape": list(self.shape)}


@dataclass(frozen=True)
class ProgramPartition:
    """Layers that run before the on-chip memory is emptied."""

    number: int
    segment: int
    layers: tuple[int, ...]
    peak: int
    budget: int

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "layers": list(self.layers)}


@dataclass(frozen=True)
class ProgramSegment:
    """One dispatch: compute between two cuts, or one native layer."""

    number: int
    kind: str
    """``compute`` or ``native``."""
    layers: tuple[int, ...]
    inputs: tuple[int | str, ...]
    outputs: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, **{name: list(getattr(self, name)) for name in ("layers", "inputs", "outputs")}}


class Program:
    """A compiled graph for one target."""

    def __init__(
        self, target: Target, module: Module, inputs: tuple[Port, ...], outputs: tuple[Port, ...], log: list[PassLog]
    ) -> None:
        self.target = target
        self.module = module
        self.inputs = inputs
        self.outputs = outputs
        self.log = tuple(log)

    @cached_property
    def _graph(self) -> LayerGraph:
        return LayerGraph.of_module(self.module)

    @cached_property
    def layers(self) -> tuple[ProgramLayer, ...]:
        """Every layer in the order of the schedule."""
        return tuple(ProgramLayer(self, place, layer) for place, layer in enumerate(self._graph.layers))

    @cached_property
    def _places(self) -> dict[int, int]:
        return {layer.number: place for place, layer in enumerate(self._graph.layers)}

    def place_of(self, layer_number: int) -> int:
        """The place in the schedule of a layer by the number that its ops carry."""
        return self._places[layer_number]

    def name_of(self, value: Op) -> int | str:
        """A value as listings name it: the layer that makes it, or the port."""
        layer = self._graph.of.get(value)
        return value.attrs["name"] if layer is None else self._places[layer.number]

    @cached_property
    def segments(self) -> tuple[ProgramSegment, ...]:
        members: dict[int, list[ProgramLayer]] = {}
        for layer in self.layers:
            members.setdefault(layer.segment, []).append(layer)
        return tuple(self._segment(number, layers) for number, layers in sorted(members.items()))

    def _segment(self, number: int, layers: list[ProgramLayer]) -> ProgramSegment:
        own = {layer.number for layer in layers}
        read = dict.fromkeys(value for layer in layers for value in layer.inputs if value not in own)
        given = [layer.number for layer in layers if self._leaves(layer, own)]
        native = any(is_bridge(layer.ops[0]) for layer in layers)
        return ProgramSegment(number, "native" if native else "compute", tuple(sorted(own)), tuple(read), tuple(given))

    def _leaves(self, layer: ProgramLayer, own: set[int]) -> bool:
        inner = self._graph.layers[layer.number]
        return inner.is_output or any(self._places[each.number] not in own for each in inner.consumers)

    @cached_property
    def partitions(self) -> tuple[ProgramPartition, ...]:
        members: dict[int, list[ProgramLayer]] = {}
        for layer in self.layers:
            members.setdefault(layer.partition, []).append(layer)
        peaks = self._peaks()
        most = budget(facts_of(self.target, ("max_operand_bytes",))["max_operand_bytes"])
        return tuple(
            ProgramPartition(
                number, layers[0].segment, tuple(each.number for each in layers), peaks.get(number, 0), most
            )
            for number, layers in sorted(members.items())
        )

    def _peaks(self) -> dict[int, int]:
        """The most bytes live in L2 at one step, by partition."""
        changes: dict[int, dict[int, int]] = {}
        for buffer in self.buffers:
            if buffer.partition is not None:
                steps = changes.setdefault(buffer.partition, {})
                first, last = buffer.live
                steps[first] = steps.get(first, 0) + buffer.bytes
                steps[last + 1] = steps.get(last + 1, 0) - buffer.bytes
        peaks = {}
        for partition, steps in changes.items():
            total = peak = 0
            for step in sorted(steps):
                total += steps[step]
                peak = max(peak, total)
            peaks[partition] = peak
        return peaks

    @cached_property
    def steps(self) -> tuple[tuple[int, ...], ...]:
        """The schedule as steps: one layer, or two that are issued together."""
        grouped = steps_of(self._graph.layers)
        return tuple(tuple(self._places[layer.number] for layer in step) for step in grouped)

    @cached_property
    def _buffers(self) -> tuple[tuple[ProgramBuffer, ...], dict[int, ProgramBuffer]]:
        """Every buffer, and the buffer of each layer. Layers share one where ``inside`` says so."""
        held: dict[int | str, list[Layer]] = {}
        ports: dict[str, Op] = {op.attrs["name"]: op for op in self.module.ops if op.kind == "live_in"}
        for layer in self._graph.layers:
            held.setdefault(self._owner(layer), []).append(layer)
        found: list[ProgramBuffer] = []
        by_layer: dict[int, ProgramBuffer] = {}
        for name, op in ports.items():
            if op.labels:
                found.append(self._record(len(found), op, op.labels, [*held.get(name, ())], name))
                by_layer |= {layer.number: found[-1] for layer in held.get(name, ())}
        for owner, layers in held.items():
            if isinstance(owner, int):
                root = self._graph.layers[self._places[owner]]
                found.append(self._record(len(found), root.result, root.primary.labels, layers, None))
                by_layer |= {layer.number: found[-1] for layer in layers}
        return tuple(found), by_layer

    def _owner(self, layer: Layer) -> int | str:
        """The layer or port whose buffer holds a result."""
        while (inside := layer.primary.labels.get("inside")) is None:
            source = next(iter(layer.inputs), None)
            if layer.engine != "view" or layer.primary.kind == "concat" or source is None:
                return layer.number
            if source.kind == "live_in":
                return source.attrs["name"]
            layer = self._graph.of[source]
        return inside

    def _record(
        self, number: int, value: Op, labels: dict[str, Any], layers: list[Layer], port: str | None
    ) -> ProgramBuffer:
        stride = labels["row_stride"]
        n, d, c, h, _ = value.shape
        names: list[int | str] = [] if port is None else [port]
        names += [self._places[layer.number] for layer in layers]
        partition = labels.get("partition") if labels["space"] == "l2" else None
        address = labels.get("address")
        if address is not None:
            address -= labels.get("buffer_offset", 0)
        size = n * d * c * h * stride
        return ProgramBuffer(
            number, labels["space"], address, size, stride, tuple(labels["live"]), partition, tuple(names)
        )

    @property
    def buffers(self) -> tuple[ProgramBuffer, ...]:
        return self._buffers[0]

    def buffer_of(self, layer: Layer) -> ProgramBuffer:
        return self._buffers[1][layer.number]

    @cached_property
    def weights(self) -> tuple[ProgramWeight, ...]:
        """Stored constants in the order in which they are packed."""
        found = []
        for op in self.module.ops:
            if op.kind != "const_in" or "kernel_bytes" not in op.labels:
                continue
            assert op.type is not None
            found.append(
                ProgramWeight(
                    op.attrs["weight"],
                    op.sources,
                    op.type.shape,
                    op.labels.get("encoding", "fp16" if op.type.dtype == "f16" else op.type.dtype),
                    stored_size(self.module, op),
                    op.labels["kernel_bytes"],
                    op.labels["address"],
                    op.labels.get("weight_flow"),
                    op.labels.get("kernel_path"),
                )
            )
        return tuple(found)

    @cached_property
    def assumptions(self) -> tuple[tuple[str, str, Fact[Any]], ...]:
        """Facts behind this program that are our own choices: the pass, the fact it read, and its evidence."""
        found = []
        for entry in self.log:
            for key in PASSES[entry.name].reads:
                fact = facts_of(self.target, PASSES[entry.name].reads).fact(key)
                if (fact.conflict_id or "").startswith("U"):
                    found.append((entry.name, key, fact))
        return tuple(found)

    @cached_property
    def stats(self) -> dict[str, Any]:
        """Counts and sizes of the whole program."""
        engines: dict[str, int] = {}
        allocations: dict[str, int] = {}
        for layer in self.layers:
            engines[layer.engine] = engines.get(layer.engine, 0) + 1
            name = layer.allocation.name.lower()
            allocations[name] = allocations.get(name, 0) + 1
        return {
            "segments": len(self.segments),
            "partitions": len(self.partitions),
            "layers": len(self.layers),
            "ops": sum(len(layer.ops) for layer in self.layers),
            "engines": dict(sorted(engines.items())),
            "allocations": dict(sorted(allocations.items())),
            "chained": sum(layer.chained for layer in self.layers),
            "co_issued": sum(layer.co_issue is not None for layer in self.layers) // 2,
            "weight_bytes": sum(weight.bytes for weight in self.weights),
            "kernel_bytes": sum(weight.stored_bytes for weight in self.weights),
            "peak_l2": max((each.peak for each in self.partitions), default=0),
            "memory_bytes": max(
                ((each.address or 0) + each.bytes for each in self.buffers if each.space == "dram"), default=0
            ),
        }

    def _phases(self) -> list[dict[str, Any]]:
        return [
            {
                "pass": each.name,
                "phase": each.phase,
                "changes": each.changes,
                "ops_before": each.ops_before,
                "ops_after": each.ops_after,
            }
            for each in self.log
        ]

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values; the same program gives the same text on every machine."""
        return {"target": self.target.name, **self._content()}

    def _content(self) -> dict[str, Any]:
        return {
            "inputs": [_port(port) for port in self.inputs],
            "outputs": [_port(port) for port in self.outputs],
            "stats": self.stats,
            "segments": [each.to_json() for each in self.segments],
            "partitions": [each.to_json() for each in self.partitions],
            "layers": [each.to_json() for each in self.layers],
            "buffers": [each.to_json() for each in self.buffers],
            "weights": [each.to_json() for each in self.weights],
            "passes": self._phases(),
        }

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal programs, whatever target they are for."""
        text = json.dumps(self._content(), sort_keys=True, default=list)
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

    @property
    def mlir(self) -> str:
        """The backend code as text, for this program's own target; the module may be shared with others."""
        return write(self.module, self.target.name)

    def __iter__(self) -> Iterator[ProgramLayer]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __str__(self) -> str:
        from aneforge.compiler.listing import listing

        return listing(self)

    def __repr__(self) -> str:
        stats = self.stats
        return f"<program for {self.target.name}: {stats['layers']} layers, {stats['partitions']} partitions>"


def _plain(attrs: dict[str, Any]) -> dict[str, Any]:
    """Attributes as JSON has them: it knows no infinite number, so an open bound is a word."""
    return {name: str(value) if isinstance(value, float) and isinf(value) else value for name, value in attrs.items()}


def _port(port: Port) -> dict[str, Any]:
    return {"name": port.name, "shape": list(port.user_shape), "ndchw": list(port.ndchw_shape), "dtype": port.dtype}
