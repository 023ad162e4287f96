"""How much one program may hold."""

from __future__ import annotations

from aneforge.anec.ir import Module
from aneforge.compiler.facts import Facts
from aneforge.compiler.passes import pass_
from aneforge.compiler.refusal import Refused
from aneforge.targets.assumed import constant

_GB = 1e9


@pass_("check-program-size", 2, requires=["segments"], ensures=["program size"], checks=True)
def check_program_size(module: Module, chip: Facts) -> int:
    """Refuse the op whose weights bring a program above what loads (C52): 1.9 GB was seen to run, 2.3 GB was not.

    Each segment is a program of its own, and a weight that several ops read is stored once.
    """
    most = constant("program_bytes")
    held: dict[int, int] = {}
    counted: set[tuple[int, str]] = set()
    for op in module.ops:
        segment = op.labels.get("segment", 0)
        for constant_in in op.operands:
            if constant_in.kind != "const_in" or constant_in.type is None:
                continue
            key = (segment, constant_in.attrs["weight"])
            if key in counted:
                continue
            counted.add(key)
            held[segment] = held.get(segment, 0) + constant_in.type.bytes
            if held[segment] > most:
                reason = (
                    f"the weights of one program reach {held[segment] / _GB:.2f} GB here, and {most / _GB:.2f} GB is "
                    "the most that was seen to load; compile parts of the model as programs of their own"
                )
                raise Refused(op, "program-size", reason, oversize=True)
    return 0
