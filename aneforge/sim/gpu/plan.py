"""Run a program on a device, many samples at a time; what has no kernel is done on the CPU, op by op, and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from aneforge.engine.interpret import named_constants
from aneforge.engine.ir import Op
from aneforge.engine.traits import Trait
from aneforge.errors import AneforgeError, ArgumentError
from aneforge.process import ahead
from aneforge.sim.executor import ExecutionPlan, Run, port_value, stored_constant
from aneforge.sim.gpu import DEVICES
from aneforge.sim.gpu.device import CudaDevice, GpuDevice, GpuMemoryError
from aneforge.sim.gpu.kernels import Kernels, Values
from aneforge.sim.gpu.rules import Launch, NoKernelError, RuleMaker, is_by_a_constant
from aneforge.sim.rules import prepared
from aneforge.sim.rules.contraction import has_stored_kernel
from aneforge.sim.rules.moves import without_nan

Array = np.ndarray
Feeds = Mapping[str, Array]
BATCH = 64
"""How many samples a device runs at a time, where its memory holds them."""


@dataclass(frozen=True)
class _DeviceStep:
    op: Op
    place: int
    reads: tuple[int, ...]
    launch: Launch | None
    done: tuple[int, ...] = ()


class DevicePlan:
    """A program prepared for a device: kernels with their weights there, and the CPU's own rule for the other ops."""

    def __init__(self, plan: ExecutionPlan, device: GpuDevice) -> None:
        self.device = device
        self.on_cpu: Counter[str] = Counter()
        """The ops that the CPU did, by kind; those that one batch needed it for are added when they ran."""
        self._plan, self._module, self._engine = plan, plan.module, plan.engine
        if self._engine.fast:
            raise ArgumentError("device", "a GPU runs the exact mode. Choose mode='exact', or device='cpu'.")
        if any(op.kind == "state" for op in self._module.ops):
            raise ArgumentError("device", "a program with states runs one sample after the other. Use device='cpu'.")
        self._place = {op: place for place, op in enumerate(self._module.ops)}
        self._calls: dict[Op, Any] = {}
        self._shared: dict[int, Values] = {}
        self._is_careful = False
        self._steps = self._build()

    def _build(self) -> list[_DeviceStep]:
        maker = RuleMaker(self._engine, self.device)
        steps = []
        for op in self._module.ops:
            if op.is_a(Trait.PORT) or op.is_a(Trait.INPUT) or op.kind == "const_in":
                continue
            kernel = stored_constant(self._module, op.operands[1]) if has_stored_kernel(op) else None
            named = named_constants(self._module, op)
            try:
                stored = stored_constant(self._module, op.operands[1]) if is_by_a_constant(op) else kernel
                reads, launch = maker.rule_of(op, stored, named)
            except NoKernelError:
                reads, launch = prepared(self._engine, op, kernel, named).reads, None
                self.on_cpu[op.kind] += 1
            steps.append(_DeviceStep(op, self._place[op], tuple(self._place[read] for read in reads), launch))
        last = {place: number for number, step in enumerate(steps) for place in (step.place, *step.reads)}
        kept = {self._place[operand] for op in self._module.ops if op.kind == "live_out" for operand in op.operands}
        done: dict[int, list[int]] = {}
        for place, number in last.items():
            if place not in kept and self._module.ops[place].kind != "const_in":
                done.setdefault(number, []).append(place)
        return [
            _DeviceStep(step.op, step.place, step.reads, step.launch, tuple(done.get(number, ())))
            for number, step in enumerate(steps)
        ]

    def run_each(self, samples: Iterable[Feeds], batch: int = BATCH) -> Iterator[Run]:
        """One run for each sample, in order; no run says which step was the first that is not finite."""
        several = iter(samples)

        def stacked() -> list[Array]:
            some = list(islice(several, batch))
            return [np.stack([_value_of(op, sample) for sample in some]) for _, op in self._plan.ports] if some else []

        for arrays in ahead(stacked):
            at = 0
            while at < len(arrays[0]):
                part = [array[at : at + batch] for array in arrays]
                runs = self._try(part)
                if runs is None:
                    batch = len(part[0]) // 2
                else:
                    yield from runs
                    at += len(runs)

    def _try(self, arrays: list[Array]) -> list[Run] | None:
        """The runs of some samples; nothing where they are too many for the device's memory."""
        try:
            return list(self._run(arrays))
        except GpuMemoryError:
            if len(arrays[0]) == 1:
                raise
            return None

    def _run(self, arrays: list[Array]) -> Iterator[Run]:
        samples = len(arrays[0])
        self.device.use()
        kernels = Kernels(self.device, samples, self._is_careful)
        outputs = self._outputs(kernels, arrays)
        if kernels.has_lost():  # the CPU does what loses digits: from here on each product is asked for
            self._is_careful = True
            outputs = self._outputs(Kernels(self.device, samples), arrays)
        for number in range(samples):
            yield Run(
                {name: without_nan(array[number]) for name, array in outputs.items()}, fidelity=self._plan.fidelity
            )

    def _outputs(self, kernels: Kernels, arrays: list[Array]) -> dict[str, Array]:
        samples = kernels.samples
        ports = zip(self._plan.ports, arrays, strict=True)
        values = {place: Values(self.device.upload(array), tuple(op.shape)) for (place, op), array in ports}
        for step in self._steps:
            operands = [values[place] if place in values else self._constant(place) for place in step.reads]
            result = None if step.launch is None else step.launch(kernels, operands)
            if step.launch is not None and result is None:
                self.on_cpu[step.op.kind] += 1
            if result is None:
                result = self._on_cpu(step.op, operands, samples)
            if result.shape != tuple(step.op.shape):
                raise AneforgeError(f"{step.op.name}: gave shape {list(result.shape)}; expected {list(step.op.shape)}")
            values[step.place] = result
            for place in step.done:
                values.pop(place, None)
        return {
            name: self._arrays(values[place] if place in values else self._constant(place), samples)
            for name, place in self._plan.outputs
        }

    def _constant(self, place: int) -> Values:
        if place not in self._shared:
            array = stored_constant(self._module, self._module.ops[place]).astype(np.float16, copy=False)
            self._shared[place] = Values(self.device.upload(array), tuple(array.shape), True)
        return self._shared[place]

    def _arrays(self, values: Values, samples: int) -> Array:
        count = 1 if values.is_shared else samples
        array = self.device.download(values.buffer, (count, *values.shape), np.float16)
        return np.broadcast_to(array, (samples, *values.shape)) if values.is_shared else array

    def _on_cpu(self, op: Op, operands: list[Values], samples: int) -> Values:
        """The CPU's own rule, sample by sample. Weights are laid out when they are first needed."""
        if op not in self._calls:
            kernel = stored_constant(self._module, op.operands[1]) if has_stored_kernel(op) else None
            self._calls[op] = prepared(self._engine, op, kernel, named_constants(self._module, op)).call
        arrays = [self._arrays(operand, samples) for operand in operands]
        results = [self._calls[op](*(np.ascontiguousarray(array[n]) for array in arrays)) for n in range(samples)]
        if results[0].dtype != np.float16:
            raise ArgumentError(
                "device", f"{op.kind} gives truth values, which a GPU does not take. Use device='cpu'."
            )
        return Values(self.device.upload(np.stack(results)), tuple(op.shape))


def _value_of(port: Op, sample: Feeds) -> Array:
    array = sample.get(port.attrs["name"])
    return np.zeros(port.shape, np.float16) if array is None else port_value(port, array)


def check_device(name: str) -> None:
    if name not in DEVICES:
        raise ArgumentError("device", f"{name!r} is not a device; choose one: {', '.join(DEVICES)}.")


_opened: list[CudaDevice] = []


def cuda() -> CudaDevice:
    """The GPU of this process, opened when it is first asked for."""
    if not _opened:
        _opened.append(CudaDevice())
    return _opened[0]
