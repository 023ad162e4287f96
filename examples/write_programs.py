"""Write ``add.hwx`` and ``conv.hwx``, two compiled programs in the engine's own container.

The words of their tasks are those that the vendor's compiler wrote for an M1, as published
(joshuaswarren/mil-hwx-compiler, ``research/oracles/h13``; copies in ``tests/hwx_examples``). The containers around
them are ours, and the weights of the convolution are zeros: the published files give only their size and hash.

``python examples/write_programs.py`` needs nothing but aneforge.
"""

from __future__ import annotations

import json
from pathlib import Path

from aneforge.codegen.assemble import CallerTensor, Parts, assemble
from aneforge.codegen.tasks import Task

FOLDER = Path(__file__).parent
PUBLISHED = FOLDER.parent / "tests" / "hwx_examples"


def program(name: str, inputs: tuple[str, ...]) -> bytes:
    """A published program of one task."""
    document = json.loads((PUBLISHED / f"{name}.json").read_text(encoding="utf-8"))
    (task,) = document["tasks"]
    words = [int(word, 16) for word in task["words"]]
    names, tensors = [*inputs, "y"], []
    for tensor, label in zip(document["tensors"], names, strict=True):
        role = "input" if tensor["role"] == "in" else "output"
        tensors.append(CallerTensor(label, role, tuple(tensor["shape"])))
    size = document["const_section"]["size"] if "conv" in name else 0
    streams = [(core * size // 16, size // 16) for core in range(16)] if size else []
    tasks = [Task(document["target"], words[: task["header"]], words[task["header"] :])]
    return assemble(Parts(document["target"], tensors, tasks, bytes(size), tiles=streams)).to_bytes()


def main() -> None:
    (FOLDER / "add.hwx").write_bytes(program("h13__binary_add_1x64x8x8", ("x", "z")))
    (FOLDER / "conv.hwx").write_bytes(program("h13__conv_k3_c64_n64_s8_bias0", ("x",)))


if __name__ == "__main__":
    main()
