"""What one layer has to do, in numbers that no chip changes: multiply-adds, bytes, elements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any

from aneforge.errors import AneforgeError, first_line, shortened, shown

CONTRACTIONS = ("conv", "linear", "bmm")
FREE = ("view", "absorbed")  # nothing to do, or done on the way out of another layer
_PALETTES = {
    "int4lut": 4, "int4": 4, "a8w4": 4, "lut1": 1, "lut2": 2, "lut3": 3, "lut4": 4, "lut4s": 4, "lut6": 6, "lut8": 8,
    "fp16lut4": 4, "vq2x64": 3, "vq4x64": 1.5, "vq8x16": 0.5,
}  # fmt: skip
"""Bits for each weight; a table of vectors has one code for several of them."""
_BYTES = {"fp16": 2.0, "int8": 1.0, "w8a8": 1.0, "fp8": 1.0, **{name: bits / 8 for name, bits in _PALETTES.items()}}
_FORMS = {"int8": "int8", "fp8": "fp8", "w8a8": "int8", **dict.fromkeys(_PALETTES, "palette")}
_INTEGERS = ("w8a8", "a8w4")
_LINE = 32  # fp16 numbers in a line of 64 bytes
_ANY, _MANY = (16, 16), 4096  # channels and places that no granularity meets
_KEPT_ZEROS = 0.63  # of a sparse weight whose share of zeros a row does not say: the one that sources used (G07)


class RowError(AneforgeError, ValueError):
    """A row that does not describe a workload: which field, and what it should be."""


@dataclass(frozen=True)
class Work:
    """One layer, once; a program runs it ``repeat`` times."""

    kind: str
    repeat: int = 1
    macs: float = 0.0
    weight_bytes: float = 0.0
    """Of one copy, in its stored encoding."""
    shared: bool = False
    """Every repeat reads the same weights."""
    form: str = "fp16"
    """How the weights are stored: ``fp16``, ``int8``, ``palette``, ``sparse`` or ``fp8`` (e4m3)."""
    zeros: float = 0.0
    """The share of weights that are zero and skipped."""
    integers: bool = False
    """One byte for a number on both sides: int8, or e4m3 where the form is ``fp8``."""
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    lines: float = 0.0
    """Bytes in and out where every row takes whole lines of 64 bytes: what a copy moves."""
    contraction: int = 1
    channels: tuple[int, int] = (1, 1)
    """Of the input (within a group) and of the output."""
    groups: int = 1
    """An output sees one group of the input's channels only."""
    positions: int = 1
    """Places of the output that share the weights."""
    kernel: tuple[int, int] = (1, 1)
    unit_steps: bool = True
    """Neither stride nor dilation."""
    elements: int = 0
    rows: int = 1
    """Of a native attention its heads, of a ranking the lines that are ranked."""
    operands: int = 1
    turned: int = 0
    """Places of a map whose channels are summed up: the engine turns them first (C79)."""

    @property
    def flops(self) -> float:
        """Two for a multiply-add; one for each element of anything else."""
        return 2.0 * self.macs if self.macs else float(self.elements)

    @property
    def traffic(self) -> float:
        """Bytes that pass the engine once: weights as they are stored, activations in and out."""
        return self.weight_bytes + self.bytes_in + self.bytes_out


def more_calls(scope: str, layers: Iterable[Work]) -> int:
    """Calls beside the first: a native ranking from Python is called for each of its rows (U231)."""
    return sum(work.rows - 1 for work in layers if work.kind == "topk") if scope == "host_call" else 0


def in_lines(shape: Sequence[int]) -> float:
    """Bytes of an fp16 tensor whose rows take whole lines of 64 bytes. Rows of one number lie side by side."""
    extents = [extent for extent in shape if extent > 1] or [1]
    return 2.0 * prod(extents[:-1]) * (-(-extents[-1] // _LINE) * _LINE)


def turned_places(shape: Sequence[int], out_shape: Sequence[int]) -> int:
    """The places whose channels a reduction sums up; none where it sums along another axis."""
    over_channels = len(shape) == len(out_shape) == 4 and shape[1] > out_shape[1] == 1
    return prod(shape) // shape[1] if over_channels else 0


def work_of_row(row: Mapping[str, Any]) -> list[Work]:
    """The layers of a row in the schema of the silicon measurements."""
    layers = row.get("layers")
    if layers is None and row.get("flops"):
        return [_totals(row)]
    if not isinstance(layers, Sequence) or isinstance(layers, str) or not layers:
        raise RowError(
            "row: it needs its layers: a list of primitives such as {'op': 'linear', 'm': 1, 'k': 64, 'n': 64}"
        )
    works: list[Work] = []
    for place, layer in enumerate(layers):
        work = _work(place, layer, row)
        behind = works and works[-1].kind in CONTRACTIONS and work.kind == "ew" and work.operands == 1
        works.append(Work("absorbed") if behind else work)
    return works


def _totals(row: Mapping[str, Any]) -> Work:
    """A row that says how much, but not of what: one layer that has all of it."""
    try:
        flops, weights, activations = (float(row.get(key) or 0) for key in ("flops", "weight_bytes", "act_bytes"))
    except (TypeError, ValueError):
        raise RowError("row: without layers it needs its totals as numbers: flops, weight_bytes, act_bytes") from None
    half = activations / 2
    return Work(
        "conv", macs=flops / 2, weight_bytes=weights, bytes_in=half, bytes_out=half, channels=_ANY, positions=_MANY
    )


def _work(place: int, layer: Any, row: Mapping[str, Any]) -> Work:
    if not isinstance(layer, Mapping) or not isinstance(layer.get("op"), str):
        raise RowError(f"layer {place} is not a record with an 'op'. Give its op and sizes.")
    try:
        make = {"conv": _conv, "linear": _linear, "bmm": _bmm}.get(layer["op"], _planar)
        work = make(layer, row)
    except KeyError as error:
        raise RowError(f"layer {place} ({shown(layer['op'])}): {error} is missing. Add it.") from None
    except (TypeError, ValueError, ArithmeticError, IndexError) as error:
        problem = shortened(first_line(error))
        raise RowError(f"layer {place} ({shown(layer['op'])}): {problem}: not a size. Correct it.") from None
    if not all(0 <= number < inf for number in (work.macs, work.weight_bytes, work.bytes_in, work.bytes_out)):
        raise RowError(f"layer {place} ({shown(layer['op'])}): its sizes are too large, or below zero. Correct them.")
    return work


def _sizes(layer: Mapping[str, Any], *keys: str) -> list[int]:
    sizes = [int(layer[key]) for key in keys]
    for key, size in zip(keys, sizes, strict=True):
        if size < 1:
            raise ValueError(f"{key} {size}")
    return sizes


def _pair(value: Any) -> tuple[int, int]:
    return (int(value[0]), int(value[-1])) if isinstance(value, (list, tuple)) else (int(value), int(value))


def _stored(layer: Mapping[str, Any], row: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Bytes and form of a weight of so many numbers."""
    encoding = str(layer.get("wenc") or row.get("weight_enc") or "fp16")
    sparse = encoding.startswith("sparse")
    zeros = float(layer.get("sparsity") or (_KEPT_ZEROS if sparse else 0.0))
    bytes_each = 2 * (1 - zeros) + 0.125 if sparse else _BYTES.get(encoding, 2.0)
    return {
        "weight_bytes": float(layer.get("wbytes") or count * bytes_each),
        "shared": bool(layer.get("shared")),
        "form": "sparse" if sparse else _FORMS.get(encoding, "fp16"),
        "zeros": float(layer.get("sparsity") or 0.0),
        "integers": encoding in _INTEGERS or (encoding == "fp8" and row.get("dtype") == "fp8"),
    }


def _repeat(layer: Mapping[str, Any]) -> int:
    count = int(layer.get("repeat") or 1)
    if count < 1:
        raise ValueError(f"repeat {count}")
    return count


def _conv(layer: Mapping[str, Any], row: Mapping[str, Any]) -> Work:
    batch, inputs, outputs, height, width, *kernel_size = _sizes(layer, "n", "cin", "cout", "h", "w", "kh", "kw")
    kernel, groups = (kernel_size[0], kernel_size[1]), int(layer.get("groups") or 1)
    stride, dilation = _pair(layer.get("stride") or 1), _pair(layer.get("dil") or 1)
    pad = _pair(layer.get("pad") or 0)
    out = [
        max(1, (extent + 2 * pad[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1)
        for i, extent in enumerate((height, width))
    ]
    inner, positions = inputs // groups, batch * prod(out)
    count = outputs * inner * prod(kernel)
    return Work(
        "conv",
        _repeat(layer),
        macs=float(positions) * count,
        **_stored(layer, row, count),
        bytes_in=2.0 * batch * inputs * height * width,
        bytes_out=2.0 * positions * outputs,
        contraction=inner * prod(kernel),
        channels=(inner, outputs),
        groups=groups,
        positions=positions,
        kernel=kernel,
        unit_steps=stride == dilation == (1, 1),
    )


def _linear(layer: Mapping[str, Any], row: Mapping[str, Any]) -> Work:
    rows, inner, outputs = _sizes(layer, "m", "k", "n")
    return Work(
        "linear",
        _repeat(layer),
        macs=float(rows) * inner * outputs,
        **_stored(layer, row, inner * outputs),
        bytes_in=2.0 * rows * inner,
        bytes_out=2.0 * rows * outputs,
        contraction=inner,
        channels=(inner, outputs),
        positions=rows,
    )


def _bmm(layer: Mapping[str, Any], row: Mapping[str, Any]) -> Work:
    batch, rows, inner, columns = _sizes(layer, "b", "m", "k", "n")
    return Work(
        "bmm",
        _repeat(layer),
        macs=float(batch) * rows * inner * columns,
        bytes_in=2.0 * batch * inner * (rows + columns),
        bytes_out=2.0 * batch * rows * columns,
        contraction=inner,
        channels=(inner, columns),
        positions=batch * rows,
    )


def _planar(layer: Mapping[str, Any], row: Mapping[str, Any]) -> Work:
    shape = [int(extent) for extent in layer["shape"]]
    out_shape = [int(extent) for extent in layer.get("out_shape") or shape]
    operands, elements = int(layer.get("n_in") or 1), prod(shape)
    return Work(
        layer["op"],
        _repeat(layer),
        bytes_in=2.0 * elements * operands,
        bytes_out=2.0 * prod(out_shape),
        lines=operands * in_lines(shape) + in_lines(out_shape),
        elements=elements,
        rows=elements // shape[-1],
        operands=operands,
        turned=turned_places(shape, out_shape) if layer["op"].startswith("reduce") else 0,
    )
