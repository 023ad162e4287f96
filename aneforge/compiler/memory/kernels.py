"""Weight packing: where kernel data lie, by which path they reach the engine, and whether they stream."""

from __future__ import annotations

from aneforge.anec.ir import Module, Op
from aneforge.anec.traits import Trait
from aneforge.compiler.facts import Facts
from aneforge.compiler.legalise.kernel_memory import is_streamable, kernel_cap, stored_size
from aneforge.compiler.passes import pass_
from aneforge.compiler.plan import StoredWeight, plan_of

ALIGNMENT = 64


def kernel_of(op: Op) -> Op | None:
    """The stored kernel of an op."""
    if not op.is_a(Trait.CONTRACTION) or len(op.operands) < 2:
        return None
    return op.operands[1] if op.operands[1].kind == "const_in" else None


@pass_(
    "pack-kernels",
    4,
    reads=[
        "kernel_stream_master",
        "kmem_cap_dense",
        "kmem_cap_streamed",
        "max_operand_bytes",
        "kernel_path",
        "stream:sparse",
        "stream:blockwise",
    ],
    requires=["task groups"],
    ensures=["packed weights"],
)
def pack_kernels(module: Module, chip: Facts) -> int:
    """Lay out stored weights in the order of their use, each once: built per core up to A13, shared from A14.

    Per core means that every core builds the part of its own output channels (listing 35.2); published programs hold
    one copy. A kernel that meets the streaming conditions is sized against the 16 MB cap and streams; any other is
    folded, which means dense, in passes where a lane's share exceeds 64 KB. Sparse and blockwise kernels stay in
    their form where the target streams it.
    """
    flows: dict[Op, str] = {}
    can_stream, working_set = kernel_cap(chip, True) != kernel_cap(chip, False), chip["max_operand_bytes"]
    for op in module.ops:
        kernel = kernel_of(op)
        if kernel is not None:
            encoding = _encoding(module, op, kernel, chip)
            if encoding != "fp16":
                kernel.labels["encoding"] = encoding
            streams = can_stream and is_streamable(op, working_set)
            flows[kernel] = "stream" if streams and flows.get(kernel) != "fold" else "fold"
    address = 0
    weights: list[StoredWeight] = []
    for op in module.ops:
        if op.kind != "const_in":
            continue
        flow = flows.get(op)
        path = None if flow is None else chip["kernel_path"]
        weight = _weight(module, op, address, flow, path)
        weights.append(weight)
        _write_labels(op, weight)
        address += -(-weight.stored_bytes // ALIGNMENT) * ALIGNMENT
    plan_of(module).weights = tuple(weights)
    return len(flows)


def _weight(module: Module, op: Op, address: int, flow: str | None, path: str | None) -> StoredWeight:
    assert op.type is not None
    encoding = op.labels.get("encoding", "fp16" if op.type.dtype == "f16" else op.type.dtype)
    size = stored_size(module, op)
    return StoredWeight(op.attrs["weight"], op.sources, op.type.shape, encoding, size, size, address, flow, path)


def _write_labels(op: Op, weight: StoredWeight) -> None:
    """The same on the constant, for the text."""
    op.labels["address"], op.labels["kernel_bytes"] = weight.address, weight.stored_bytes
    if weight.flow is not None and weight.path is not None:
        op.labels["weight_flow"], op.labels["kernel_path"] = weight.flow, weight.path


def _encoding(module: Module, op: Op, kernel: Op, chip: Facts) -> str:
    """How a kernel is stored: by the attributes of its op, or in the form the model brought it in."""
    assert kernel.type is not None
    if kernel.type.dtype != "f16":
        looked_up = any(name.lower().endswith("lut") for name in op.attrs)
        return f"lut{kernel.type.dtype[2:]}" if looked_up else f"int{kernel.type.dtype[2:]}"
    encoded = module.weights[kernel.attrs["weight"]].encoded if kernel.attrs["weight"] in module.weights else None
    if encoded is None or encoded.form == "palette" or (encoded.form == "affine" and encoded.bits in (4, 8)):
        return "fp16"  # a palette or codes that the op's attributes could not say were expanded
    form = "sparse" if encoded.form == "sparse" else "blockwise"
    return encoded.name if chip.get(f"stream:{form}") == "stream" else "fp16"
