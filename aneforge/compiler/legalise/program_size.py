"""How much one program may hold."""

from __future__ import annotations

from aneforge.anec.ir import Module
from aneforge.compiler.facts import Facts
from aneforge.compiler.legalise.kernel_memory import constant_size
from aneforge.compiler.passes import pass_
from aneforge.compiler.refusal import Refused, RefusedOps
from aneforge.compiler.schedule.layers import LayerGraph
from aneforge.targets.assumed import constant

_GB = 1e9


@pass_("check-program-size", 2, requires=["layers", "segments"], ensures=["program size"], checks=True)
def check_program_size(module: Module, chip: Facts) -> int:
    """Refuse the ops whose weights bring a program above what loads (C52): 1.9 GB was seen to run, 2.3 GB was not.

    Each segment is a program of its own, and a weight that several ops read is stored once.
    """
    most = constant("program_bytes")
    if _all_bytes(module) <= most:
        return 0
    graph = LayerGraph.of_module(module)
    stored_bytes: dict[int, int] = {}
    counted: set[tuple[int, str]] = set()
    refused = []
    for op in module.ops:
        segment = graph.of[op].segment if op in graph.of else 0
        for kernel in op.operands:
            if kernel.kind != "const_in" or kernel.type is None or (segment, kernel.attrs["weight"]) in counted:
                continue
            counted.add((segment, kernel.attrs["weight"]))
            stored_bytes[segment] = stored_bytes.get(segment, 0) + constant_size(module, kernel)
            if stored_bytes[segment] > most:
                reason = (
                    f"the weights of one program reach {stored_bytes[segment] / _GB:.2f} GB at this op; "
                    f"{most / _GB:.2f} GB is the most that was seen to load. "
                    "Compile parts of the model as separate programs"
                )
                refused.append(Refused(op, "program-size", reason, oversize=True))
    if refused:
        raise RefusedOps(refused)
    return 0


def _all_bytes(module: Module) -> int:
    """The bytes of all constants, each once: no segment has more."""
    constants = {op.attrs["weight"]: op for op in module.ops if op.kind == "const_in"}
    return sum(constant_size(module, op) for op in constants.values())
