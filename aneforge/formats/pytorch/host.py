"""What PyTorch ops are read, left to the host or refused, and why; host ops run as ATen ops in float32 on the CPU."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
import torch

from aneforge.errors import GraphError, LoadError, install_hint
from aneforge.formats.importer.op import INTEGERS
from aneforge.formats.pytorch.table import ROWS
from aneforge.formats.rows import by_name

# pyright: reportMissingImports=false


_NAMESPACES = ("aten", "quantized_decomposed", "transformers")


def evaluate(kind: str, body: str, operands: list[np.ndarray], output: int) -> np.ndarray:
    """Return one result of an op. ``body`` describes its arguments: operands and known values."""
    if kind == "aneforge.marks":
        return _marks(operands[0], json.loads(body)["size"], output)
    torch = _torch()
    arguments = json.loads(body)
    with torch.no_grad():
        results = _op(kind)(
            *(_argument(argument, operands) for argument in arguments["args"]),
            **{name: _argument(argument, operands) for name, argument in arguments["kwargs"].items()},
        )
    result = results[output] if isinstance(results, (list, tuple)) else results
    numbers = np.asarray(result.detach().numpy() if isinstance(result, torch.Tensor) else result)
    return numbers if numbers.ndim else numbers.reshape(1)


def _torch() -> Any:
    try:
        import torch
    except ModuleNotFoundError:
        raise GraphError(
            f"the graph has PyTorch ops on the host, which need the torch package: {install_hint('torch')}"
        ) from None
    return torch


def _marks(places: np.ndarray, size: int, output: int) -> np.ndarray:
    """Return the one-hot matrix [size, places]; for output 1, a mask of the positions that occur."""
    indices = np.rint(np.asarray(places, np.float64)).astype(np.int64).reshape(-1)
    if ((indices < -size) | (indices >= size)).any():
        raise ValueError(
            f"index {int(indices[np.argmax(np.abs(indices))])} is out of range for an axis of {size} elements"
        )
    marks = np.arange(size)[:, None] == (indices % size)[None]
    return marks.any(axis=1) if output == 1 else marks.astype(np.float32)


@lru_cache
def _op(kind: str) -> Any:
    """Return the op of that name. Only ops that the reader gives to the host are allowed, since the graph may come
    from a file."""
    from aneforge.formats.pytorch.table import plain_name, row_for

    torch = _torch()
    space, _, qualified = kind.partition(".")
    name, _, overload = qualified.rpartition(".")
    if space not in _NAMESPACES or (row_for(kind) is None and plain_name(kind)[0] not in HOSTED):
        raise GraphError(f"{kind!r} is not an op that the host computes; the graph must name an op of the reader")
    if space == "transformers":
        declare_grouped_product()
    if space == "quantized_decomposed":
        import torch.ao.quantization.fx._decomposed  # type: ignore[import-not-found]
    packet = getattr(getattr(torch.ops, space), name)
    return getattr(packet, overload)


def _argument(record: Any, operands: Sequence[np.ndarray]) -> Any:
    torch = _torch()
    if isinstance(record, list):
        return [_argument(element, operands) for element in record]
    if not isinstance(record, dict):
        return record
    if "dtype" in record and len(record) == 1:
        return getattr(torch, record["dtype"])
    kind, shape = getattr(torch, record["dtype"]), tuple(record["shape"])
    if "operand" in record:
        numbers = np.asarray(operands[record["operand"]])
        if "int" in record["dtype"] and numbers.dtype.kind == "f":
            numbers = np.rint(numbers).astype(np.int64)
        return torch.from_numpy(np.array(numbers)).to(kind).reshape(shape)
    raw = bytearray(base64.b64decode(record["bytes"]))
    return torch.frombuffer(raw, dtype=kind).reshape(shape) if raw else torch.empty(shape, dtype=kind)


def body_of(args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """Arguments as text; tensors are already records (see :func:`inlined`, and ``{"operand": place, ...}``)."""
    return json.dumps({"args": list(args), "kwargs": kwargs})


def inlined(tensor: Any) -> dict[str, Any]:
    """Return a small known tensor as a record with all its numbers."""
    array = tensor.detach().contiguous().cpu()
    text = base64.b64encode(array.reshape(-1).view(_torch().uint8).numpy().tobytes()) if array.numel() else b""
    kind = str(array.dtype).removeprefix("torch.")
    return {"bytes": text.decode("ascii"), "dtype": kind, "shape": list(array.shape)}


# The product of mixtures of experts that transformers adds to PyTorch: rows in groups, a matrix for each group.


# pyright: reportMissingImports=false


_declared: list[Any] = []  # a library lives as long as somebody holds it


@cache
def declare_grouped_product() -> None:
    """Declare the op, unless transformers has done it."""
    if hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        return
    library = torch.library.Library("transformers", "FRAGMENT")
    library.define("grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor")
    library.impl("grouped_mm_fallback", _product, "CompositeExplicitAutograd")
    library.impl("grouped_mm_fallback", _shape, "Meta")
    _declared.append(library)


def _product(rows: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    result = rows.new_zeros(rows.shape[0], weight.shape[2])
    begin = 0
    for matrix, end in zip(weight, ends.tolist(), strict=True):
        result[begin:end] = rows[begin:end] @ matrix
        begin = end
    return result


def _shape(rows: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return rows.new_empty(rows.shape[0], weight.shape[2])


# Which ATen ops the reader supports: what each becomes, and why an op is left to the host or refused.


# pyright: reportMissingImports=false


_INDEX = "it picks elements by a computed index; the engine takes fixed indices only (C42)"
_SPECIAL = "no engine has this function, and no short combination of other ops gives it"
_GROUPS = "its rows belong to groups that the data decide; the engine needs a fixed program"
_RUNNING = "it finds the running maximum or minimum along an axis, step by step; the engine has no op for it"
_WRITES = "it writes to computed indices; the engine takes fixed indices only (C42)"
_ALGEBRA = "it is linear algebra whose steps depend on the data; the engine needs a fixed program"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


HOSTED: dict[str, str] = by_name(
    {
        _INDEX: "_embedding_bag _embedding_bag_forward_only bucketize searchsorted",
        _GROUPS: "_grouped_mm transformers.grouped_mm_fallback",
        "it gives the distance of each pair of rows once; the engine has no op for it": "_pdist_forward",
        INTEGERS: "bincount bitwise_left_shift bitwise_right_shift histc one_hot tril_indices triu_indices",
        _RUNNING: "cummax cummin",
        "it multiplies along an axis, step by step; the engine has no op for it": "cumprod",
        _SPECIAL: "digamma erfinv i0 igamma igammac lgamma mvlgamma polygamma special_entr special_erfcx special_i0e "
        "special_i1 special_i1e special_log_ndtr special_ndtri special_zeta",
        "it gives the k-th smallest element and its position; the engine has no op for it": "kthvalue",
        _ALGEBRA: "linalg_cholesky_ex linalg_det linalg_inv_ex linalg_qr linalg_solve_ex",
        "it sums exponentials along an axis, step by step; the engine has no op for it": "logcumsumexp",
        _WRITES: "masked_scatter max_unpool2d max_unpool3d",
        "it gives the median and its position; the engine has no op for it": "median",
        "it finds the most frequent element along an axis; the engine has no op for it": "mode",
        "it gives the next number of float32; the engine computes in fp16": "nextafter",
    }
)
"""Reasons by op, as the user reads them. The results have fixed shapes, so the model still loads."""

_TRAINING = "this op belongs to training; export the module after .eval(), without gradients"
_BATCH = "training mode measures each batch; use module.eval() before exporting"
_COMPLEX = "complex numbers are not supported; the engine takes real numbers only"
_ROTATION = "complex numbers are not supported; write the rotation with sines and cosines"
_COUNT = "the size of the result depends on the data; the engine needs fixed sizes"
DRAWS = "it draws new random numbers in every run; make them an input of the model"

REFUSED: dict[str, str] = by_name(
    {
        _TRAINING: "_adaptive_avg_pool2d_backward avg_pool2d_backward convolution_backward embedding_dense_backward "
        "max_pool2d_with_indices_backward native_group_norm_backward native_layer_norm_backward",
        _BATCH: "_native_batch_norm_legit.default _native_batch_norm_legit_functional",
        _COMPLEX: "_fft_c2c _fft_c2r _fft_r2c complex",
        _ROTATION: "polar view_as_complex view_as_real",
        _COUNT: "_unique2 masked_select nonzero unique_consecutive unique_dim",
        DRAWS: "bernoulli multinomial normal_functional rand rand_like randint randint_like randn randn_like randperm "
        "uniform",
    }
)
"""Ops that are refused unless their operands are known, with the reason."""

CONSTANT = _words(
    "_local_scalar_dense arange empty empty_strided eye full linspace logspace ones scalar_tensor sym_numel "
    "sym_size sym_storage_offset sym_stride zeros"
)
"""Ops of known values only; the ATen op computes them."""

NATIVE = _words(
    "_native_batch_norm_legit_no_training _softmax abs absolute acos acosh add amax amin asin asinh atan atan2 "
    "atanh avg_pool2d batch_norm bmm cat ceil clamp concat constant_pad_nd conv2d conv_transpose2d convolution "
    "cos cosh deg2rad div elu eq erf exp exp2 expand flip floor floor_divide gather ge gelu gt hardsigmoid "
    "hardtanh index_select isnan layer_norm le leaky_relu linear log log1p logical_and logical_not logical_or "
    "logical_xor logsumexp lt matmul max_pool2d maximum mean minimum mm mul native_layer_norm ne neg permute "
    "pixel_shuffle pixel_unshuffle pow prelu prod rad2deg reciprocal reflection_pad1d reflection_pad2d relu "
    "relu6 remainder repeat replication_pad1d replication_pad2d reshape rms_norm round rsqrt "
    "scaled_dot_product_attention select sgn sigmoid sign signbit silu sin sinh slice softmax softplus softsign "
    "sqrt square squeeze stack sub sum tan tanh tile transpose unsqueeze upsample_bilinear2d upsample_nearest2d "
    "view where quantized_decomposed.dequantize_per_tensor quantized_decomposed.quantize_per_tensor"
)
"""Ops that become one op of the graph language, with at most a view beside it; the others become several."""

_NOTES: dict[str, str] = by_name(
    {
        "on the host when the index is computed": "embedding gather index index_select take",
        "on the host when the indices are computed": "index_add index_fill scatter scatter_add scatter_reduce",
        "the host turns a computed index into a mask, and the engine selects by it": "index_copy index_put",
        "on the host when the indices are read": "max_pool2d_with_indices max_pool3d_with_indices",
    }
)
_KNOWN = "its value depends on constants only; it is computed while the model is read"


def refusal(base: str, full: str) -> str | None:
    """Why an op is refused; None if it is not."""
    return REFUSED.get(full) or REFUSED.get(base)


def is_kept(base: str, full: str) -> bool:
    """Whether the reader has an answer for an op, so that PyTorch need not decompose it. Where PyTorch has formulas
    for an op of training, they are read instead."""
    refused = refusal(base, full)
    return base in ROWS or full in ROWS or base in HOSTED or refused not in (None, _TRAINING)


def support(name: str) -> tuple[str, str]:
    """What an op becomes (``native form``, ``equivalent``, ``host`` or ``refused``), and why or when."""
    if name in REFUSED:
        return "refused", REFUSED[name]
    if name in HOSTED:
        return "host", HOSTED[name]
    if name in CONSTANT:
        return "equivalent", _KNOWN
    if name not in ROWS and not any(row.startswith(f"{name}.") for row in ROWS):
        return "refused", "this op is not supported"
    return "native form" if name in NATIVE else "equivalent", _NOTES.get(name, "")


def coverage() -> list[tuple[str, str, str]]:
    """(op, form, why) for every core ATen op and every op that the reader has an answer for."""
    names = {name if name.startswith("quantized") else name.split(".")[0] for name in (*ROWS, *REFUSED)}
    return [(name, *support(name)) for name in sorted(names | set(HOSTED) | _core())]


def _core() -> set[str]:
    try:
        import torch
    except ModuleNotFoundError:
        raise LoadError(f"listing the core ATen ops needs the torch package: {install_hint('torch')}") from None
    aten = torch.ops.aten
    packets = (getattr(aten, name) for name in dir(aten))
    return {
        packet._qualified_op_name.split("::")[1]
        for packet in packets
        if hasattr(packet, "overloads")
        and any(torch.Tag.core in getattr(packet, overload).tags for overload in packet.overloads())
    }
