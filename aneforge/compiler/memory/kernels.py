"""Weight packing: where kernel data lie, by which path they reach the engine, and whether they stream."""

from __future__ import annotations

from aneforge.compiler.facts import Facts
from aneforge.compiler.labels import stored_weight
from aneforge.compiler.legalise.encodings import kernel_encoding
from aneforge.compiler.legalise.kernels import CONTRACTIONS, kernel_of, layer_flow
from aneforge.compiler.passes import pass_
from aneforge.compiler.plan import StoredWeight, plan_of
from aneforge.engine.ir import Module, Op

ALIGNMENT = 64


@pass_(
    "pack-kernels",
    4,
    reads=[
        "kernel_stream_master",
        "kmem_cap_dense",
        "kmem_cap_streamed",
        "max_operand_bytes",
        "kernel_path",
    ],
    requires=["task groups"],
    ensures=["packed weights"],
)
def pack_kernels(module: Module, chip: Facts) -> int:
    """Lay out stored weights in the order of their use, each once: built per core up to A13, shared from A14.

    Per core means that every core builds the part of its own output channels (listing 35.2); published programs hold
    one copy. A kernel that meets the streaming conditions is sized against the 16 MB cap and streams; any other is
    folded, which means dense, up to A13 in passes where a lane's share exceeds 64 KB. Forms that the target does not
    stream were expanded before (``expand-encodings``); what is still encoded stays so.
    """
    readers: dict[Op, Op] = {}
    flows: dict[Op, str] = {}
    for op in module.ops:
        kernel = kernel_of(op) if op.kind in CONTRACTIONS else None
        if kernel is not None:
            readers[kernel] = op
            encoding = kernel_encoding(module, op)
            if encoding != "fp16":
                kernel.mark(encoding=encoding)
            flows[kernel] = "stream" if layer_flow(op, chip).streams and flows.get(kernel) != "fold" else "fold"
    address, path_of_kernels = 0, chip["kernel_path"]
    weights: list[StoredWeight] = []
    for op in module.ops:
        if op.kind != "const_in":
            continue
        path = None
        if op in flows:
            path = path_of_kernels
            op.mark(weight_flow=flows[op])
        weight = stored_weight(module, op, readers.get(op), address, path)
        weights.append(weight)
        address += -(-weight.stored_bytes // ALIGNMENT) * ALIGNMENT
    plan_of(module).weights = tuple(weights)
    return len(flows)
