"""A stored constant as an object, from its op and its labels."""

from __future__ import annotations

from aneforge.compiler.legalise.encodings import decoded_kernel
from aneforge.compiler.legalise.kernels import side_constants_size, stored_size
from aneforge.compiler.plan import StoredWeight
from aneforge.engine.ir import Module, Op


def stored_weight(module: Module, op: Op, reader: Op | None, address: int, path: str | None) -> StoredWeight:
    """One stored constant with what its labels and the op that reads it as a kernel say."""
    assert op.type is not None
    encoding = op.labels.get("encoding", "fp16" if op.type.dtype == "f16" else op.type.dtype)
    size = stored_size(module, op)
    beside = 0 if reader is None else side_constants_size(module, reader)
    key = op.attrs["weight"]
    numbers = module.weights.get(key)
    if numbers is not None and reader is not None:
        numbers = decoded_kernel(module, reader)  # a recipe: nothing is computed before it is read
    return StoredWeight(
        key,
        op.sources,
        op.type.shape,
        encoding,
        size,
        size + beside,
        address,
        op.labels.get("weight_flow"),
        path,
        op.labels.get("folded"),
        numbers,
    )
