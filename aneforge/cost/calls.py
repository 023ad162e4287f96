"""What a call costs around the engine, by what its scope covers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from aneforge.errors import ArgumentError

# The constants of one chip, in the units that the model computes with, and the roofline that they make.


@dataclass(frozen=True)
class Roof:
    """What bounds a chip: operations per microsecond, and bytes per microsecond for what is read once."""

    peak: float
    bandwidth: float

    def at(self, intensity: float) -> float:
        """Operations per microsecond that a layer of so many operations per byte can reach."""
        return min(self.peak, intensity * self.bandwidth)

    @property
    def ridge(self) -> float:
        """Operations per byte from which the multiply-adds bound a layer."""
        return self.peak / self.bandwidth


@dataclass(frozen=True)
class Constants:
    """One chip, and what all chips share. Rates are per microsecond: bytes, multiply-adds, elements.

    The fit times layers of many chips at once: then a constant of the chip is an array, one number for each layer.
    """

    chip: Mapping[str, Any]
    shared: Mapping[str, Any]
    engines: Any = 1
    winograd: Any = False
    skips_zeros: Any = False
    """Exact zeros in plain weights are skipped (C54)."""
    narrow_kernels: Any = False
    """Weights keep their stored width in the kernel memory too (C59, C70)."""
    notch: Any = False
    """Weights stream slowly where one core's share is a multiple of 1 MiB (C69)."""
    slow_when_deep: Any = False
    """Products over long sums run at half of the rate (C74)."""

    @property
    def roof(self) -> Roof:
        return Roof(2.0 * self.chip["macs"] * self.engines, self.chip["weights"])


_LINE = 64
SCOPES = {
    "host_call": "a call from Python with arrays",
    "coreml_call": "a call in an app through Core ML",
    "coreai_call": "a call in an app through Core AI",
    "app_call": "a round of an app with its copies",
    "direct_call": "a call of the engine's own program on bound surfaces",
    "device_task": "the engine alone",
    "slope": "one more layer of a chain",
    "metal_call": "a graph of Metal on the engine",
}
"""What a time covers, in words."""

_OF_ROWS = ("slope", "metal_call")  # scopes of measurements, not of programs

PYTHON_SCOPE = "host_call"
"""A call of a program that Python compiled, which the seed page's figures are about."""
APP_SCOPE = "coreml_call"
"""The call that most people ship: what times cover where nobody says, unless another runtime is asked about."""

CONVERTED = ("coreml_call", "coreai_call", "app_call", "metal_call", "direct_call", "device_task")
"""The scopes of programs that were converted, by a framework or from the compiler's own text; calls from Python with
arrays are those of programs that were authored layer by layer."""


def check_scope(scope: str) -> None:
    """Refuse what is not a scope."""
    if scope not in SCOPES or scope in _OF_ROWS:
        known = ", ".join(name for name in SCOPES if name not in _OF_ROWS)
        raise ArgumentError("scope", f"{scope!r} is not a scope; choose one: {known}.")


class Ports(NamedTuple):
    """What one call brings in and takes out."""

    read: Any
    written: Any
    """Bytes."""
    rows: Any = 0.0
    """How many rows end inside a line of 64 bytes: those are copied one by one."""
    row_bytes: Any = 0.0
    """The bytes of these rows."""

    @staticmethod
    def of(inputs: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]) -> Ports:
        """Of fp16 tensors of these shapes."""
        read, written = (float(sum(2 * math.prod(shape) for shape in shapes)) for shapes in (inputs, outputs))
        return Ports(read, written, *short_rows((*inputs, *outputs)))


def short_rows(shapes: Iterable[Sequence[int]]) -> tuple[float, float]:
    """Rows of fp16 tensors that are not whole lines of 64 bytes, and their bytes. One row alone needs no care."""
    short = [shape for shape in shapes if math.prod(shape[:-1]) > 1 and 2 * shape[-1] % _LINE]
    return float(sum(math.prod(shape[:-1]) for shape in short)), float(sum(2 * math.prod(shape) for shape in short))


def call_us(scope: Any, engine_us: Any, io: Ports, known: Constants, calls: Any = 1) -> Any:
    """A whole call: what its scope covers around the engine's time. Of many calls at once, arrays.

    ``calls`` is the number of programs: each is started, only the first one and the last one exchange data with the
    caller.
    """
    chip, scope = known.chip, np.asarray(scope)
    moved, again = (io.read + io.written) / chip["coreml_io"], chip["direct_call"] * (calls - 1)
    by_row = known.shared["host_row"] * io.rows + known.shared["host_row_byte"] * io.row_bytes
    copies = io.read / chip["host_in"] + io.written / chip["host_out"]
    around = {
        "host_call": chip["host_call"] * (calls + by_row) + copies,
        "coreml_call": chip["coreml_call"] + again + moved,
        "coreai_call": chip["coreai_call"] + again + moved,
        "app_call": chip["coreml_call"] + chip["app_call"] + again + moved,
        "metal_call": chip["direct_call"] + known.shared["metal_call"] + again + moved,
        "direct_call": chip["direct_call"] * calls,
        "device_task": chip["device_task"] * calls + known.shared["device_io"] * moved,
        "slope": 0.0,
    }
    return engine_us + np.select([scope == name for name in around], list(around.values()))
