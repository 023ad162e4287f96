"""A partition on inputs: engine regions simulated in turn, host regions computed in float32."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from aneforge.errors import AneforgeError
from aneforge.graph.reference import value_of
from aneforge.graph.tensor import Tensor
from aneforge.sim.executor import Run, TraceEntry
from aneforge.sim.nodes import NodeValues, node_order
from aneforge.sim.ports import check_bytes
from aneforge.study.model import Model
from aneforge.study.partition import Partition, compiled_partition
from aneforge.study.regions import HOST, Region


@dataclass
class RegionsRun:
    """One run of all regions."""

    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    """The model's outputs, by name."""
    engine: dict[int, Run] = field(default_factory=dict)
    """What the simulator gave for each engine region, by number."""
    host: dict[str, np.ndarray] = field(default_factory=dict)
    """What the host computed, by node."""

    layers: dict[int, int] = field(default_factory=dict)
    """How many layers of earlier regions come before those of a region: layers are numbered through all of them."""

    @property
    def trace(self) -> list[TraceEntry]:
        """Every op of every layer of the engine, where it was asked for."""
        return [self._placed(number, entry) for number, run in self.engine.items() for entry in run.trace]

    @property
    def first_non_finite(self) -> TraceEntry | None:
        for number, run in self.engine.items():
            if run.first_non_finite is not None:
                return self._placed(number, run.first_non_finite)
        return None

    def _placed(self, number: int, entry: TraceEntry) -> TraceEntry:
        before = self.layers.get(number, 0)
        return replace(entry, layer=entry.layer + before) if before else entry

    @property
    def fidelity(self) -> dict[str, int]:
        """How many ops of the engine are exact, modelled or assumed."""
        counts: dict[str, int] = {}
        for run in self.engine.values():
            for label, count in run.fidelity.items():
                counts[label] = counts.get(label, 0) + count
        return counts


class Runner:
    """Runs the regions of a partition in their order."""

    def __init__(self, partition: Partition, models: Mapping[int, Model]) -> None:
        self.partition, self.models = partition, models

    @classmethod
    def of_model(cls, model: Model) -> Runner:
        """What runs a compiled model: the one region of a graph that a chip takes whole."""
        return cls(compiled_partition(model.graph, model.program), {0: model})

    def run_each(self, samples: Iterable[Mapping[str, np.ndarray]], device: str = "cpu") -> Iterator[RegionsRun]:
        """One run for each sample, in order; of one program several are under way where there are CPUs for them.
        Samples are read as they are needed, and none is kept. ``device`` is where one program runs; regions of several
        run on the CPU."""
        if not self.partition.cut.untouched:
            yield from map(self.run, samples)
            return
        for done in self.models[0].batch(samples, device=device):
            yield RegionsRun(done.outputs, {0: done})

    def run(self, feeds: Mapping[str, np.ndarray], trace: bool = False) -> RegionsRun:
        """All regions on inputs by name; ``trace`` keeps what every op of the engine gave."""
        split, done = self.partition, RegionsRun()
        if split.cut.untouched:  # the model's own ports, which its program knows best
            done.engine[0] = self.models[0].run(feeds, trace)
            done.outputs = done.engine[0].outputs
            return done
        values = self._fed(feeds)
        self._compute(split.cut.operations.port_views.values(), values, done)
        for region in split.regions:
            if region.device == HOST:
                self._compute(region.nodes, values, done)
            else:
                self._simulate(region, values, done, trace)
        done.outputs = {split.names[output.uid]: _result(output, values) for output in split.graph.outputs}
        return done

    def _fed(self, feeds: Mapping[str, np.ndarray]) -> dict[int, np.ndarray]:
        split = self.partition
        ports = {split.names[port.uid]: port for port in (*split.graph.inputs, *split.graph.parameters)}
        values: dict[int, np.ndarray] = {}
        for name, value in feeds.items():
            if name not in ports:
                raise AneforgeError(f"{name}: not an input of the graph. Choose from: {', '.join(ports)}.")
            if ports[name].dtype == "uint8":
                check_bytes(name, value)
            values[ports[name].uid] = np.asarray(value)
        missing = [name for name, port in ports.items() if port.op == "input" and port.uid not in values]
        if missing:
            raise AneforgeError(f"{missing[0]}: this input has no value. The graph takes {', '.join(ports)}.")
        return values

    def _simulate(self, region: Region, values: dict[int, np.ndarray], done: RegionsRun, trace: bool) -> None:
        names = self.partition.names
        fed = {names[port.uid]: values[port.uid] for port in region.inputs if port.uid in values}
        run = self.models[region.number].run(fed, trace)
        done.layers[region.number] = sum(len(self.models[number].program.layers) for number in done.engine)
        done.engine[region.number] = run
        for output in region.outputs:
            value = run.outputs[names[output.uid]]
            values[output.uid] = value > 0.5 if output.dtype == "bool" else value

    def _compute(self, nodes: Iterable[Tensor], values: dict[int, np.ndarray], done: RegionsRun) -> None:
        """Node by node, every result rounded to float32."""
        for node in nodes:
            result = value_of(node, [_operand(operand, values) for operand in node.inputs])
            values[node.uid] = result if node.dtype in ("bool", "int32") else result.astype(np.float32)
            done.host[self.partition.names[node.uid]] = values[node.uid]


def _operand(operand: Tensor, values: Mapping[int, np.ndarray]) -> np.ndarray:
    value = values.get(operand.uid)
    if value is None:
        value = value_of(operand, [])  # a constant, the start value of a parameter, random numbers
    return np.asarray(value, bool if operand.dtype == "bool" else np.float64)


def _result(output: Tensor, values: Mapping[int, np.ndarray]) -> np.ndarray:
    return values[output.uid] if output.uid in values else value_of(output, [])


def value_order(split: Partition) -> dict[str, int]:
    """The nodes whose value a run has, in the order of the regions, each with its place in that order."""
    order: dict[str, int] = {}
    start = 0
    for region in split.regions:
        if region.device == HOST:
            for node in region.nodes:
                order.setdefault(split.names[node.uid], start)
                start += 1
            continue
        program = split.programs[region.number]
        for name, place in node_order(program).items():
            order.setdefault(name, start + place)
        start += len(program.module.ops)
    return order


class RegionValues(Mapping[str, np.ndarray]):
    """What each node gave in a run with a trace: fp16 or truth values, in the user's shapes. Of a tensor that crosses
    it is what the region gave that made it."""

    def __init__(self, split: Partition, run: RegionsRun) -> None:
        self._home: dict[str, Mapping[str, np.ndarray]] = {}
        for name in run.host:
            self._home[name] = run.host
        for number, done in run.engine.items():
            values = NodeValues(split.programs[number], done)
            for name in values:
                self._home.setdefault(name, values)

    def __getitem__(self, name: str) -> np.ndarray:
        value = self._home[name][name]
        return value if value.dtype in (np.float16, np.bool_) else value.astype(np.float16)

    def __iter__(self) -> Iterator[str]:
        return iter(self._home)

    def __len__(self) -> int:
        return len(self._home)
