"""Speed of containers: read and written back, written from networks, and ``aneforge inspect`` from the shell. Asserts
no times.

Run with ``make bench`` or ``python bench/containers.py [--json]``. Throughput is of one core, without the disk, the
best of several runs: of a program that is mostly weights, and of one that is mostly tasks. Networks are compiled
first; the verdicts on their tasks stand beside the time.
"""

from __future__ import annotations

import json
import runpy
import struct
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

from networks import NETWORKS
from targets import best

import aneforge as af
from aneforge.codegen.assemble import CallerTensor, Parts, assemble
from aneforge.codegen.container import read_container
from aneforge.codegen.emission import emit
from aneforge.codegen.registers import register_map
from aneforge.codegen.tasks import Task, header_fields, header_values

ROOT = Path(__file__).resolve().parents[1]


def program(tasks: int, constants: int) -> bytes:
    """A program of h13 whose tasks write every register."""
    known = register_map("h13")
    body: list[int] = []
    for name in known.order:
        block = known.blocks[name]
        body += [(len(block.registers) - 1) << 26 | (block.base or 0), *([1] * len(block.registers))]
    size = len(header_fields("h13")) + len(body)
    step = -(-4 * size // 256) * 256
    chain = []
    for number in range(tasks):
        is_last = number == tasks - 1
        following = {} if is_last else {"NextPointer": (number + 1) * step, "NextSize": size - 1}
        header = header_values("h13", {"TID": number & 0xFFFF, **following})
        chain.append(Task("h13", header, body, number * step))
    tensors = [CallerTensor("x", "input", (1, 8, 8, 8)), CallerTensor("y", "output", (1, 8, 8, 8))]
    return assemble(Parts("h13", tensors, chain, bytes(constants))).to_bytes()


def rewritten(data: bytes) -> bytes:
    return read_container(data).to_bytes()


def rewritten_with_tasks(data: bytes) -> bytes:
    container = read_container(data)
    assert container.tasks
    return container.to_bytes()


def written(network: str) -> tuple[float, str]:
    """Seconds to write a network's program for h13, and what its tasks rest on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the adviser says of a network is not asked here
        make = NETWORKS.get(network)
        out = runpy.run_path(str(ROOT / "examples" / f"{network}.py"))["out"] if make is None else make()
        program = af.compile(out, target="h13", _check_precision=False).program
    record = emit(program).record
    assert record is not None
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in record.verdicts.items())
    return best(lambda: emit(program).to_bytes()), verdicts


def shell(*words: str) -> float:
    command = [sys.executable, *words]
    return best(lambda: subprocess.run(command, check=True, capture_output=True))  # noqa: S603


def main() -> None:
    figures: dict[str, float] = {}
    for name, data in (("weights", program(1, 100 << 20)), ("tasks", program(10_240, 64))):
        megabytes = len(data) / 1e6
        assert rewritten(data) == rewritten_with_tasks(data) == data
        figures[f"{name}: {megabytes:.0f} MB, read and written, MB/s"] = megabytes / best(lambda d=data: rewritten(d))
        seconds = best(lambda d=data: rewritten_with_tasks(d))
        figures[f"{name}: {megabytes:.0f} MB, with its chain of tasks, MB/s"] = megabytes / seconds
    for network in ("resnet50", "mobilenetv2", "vit"):
        seconds, verdicts = written(network)
        figures[f"{network} written for h13 ({verdicts}), ms"] = 1e3 * seconds
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.hwx"
        data = program(60, 4096)
        file.write_bytes(data)
        size = f"{len(data) / 1024:.0f} KiB, {struct.unpack_from('<I', data, 16)[0]} load commands, 60 tasks"
        figures[f"inspect from the shell ({size}), ms"] = 1e3 * shell("-m", "aneforge", "inspect", str(file))
        figures["an empty interpreter, ms"] = 1e3 * shell("-c", "")
        figures["aneforge --version, ms"] = 1e3 * shell("-m", "aneforge", "--version")
    if "--json" in sys.argv:
        print(json.dumps(figures, indent=1))
    else:
        width = max(map(len, figures))
        print("\n".join(f"{name.ljust(width)}  {value:10.1f}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
