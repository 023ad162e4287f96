# pyright: basic, reportMissingImports=false
"""Damaged files of every format: a model loads, or one line says what is wrong. Never another exception, never a hang.

Each run changes sound files in many ways from fixed seeds. ``ANEFORGE_MUTATIONS=5000`` looks further than the tests;
what it finds is kept in ``KEPT``.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aneforge as af
from aneforge import files as budgets
from aneforge.errors import AneforgeError

kit = pytest.importorskip("coreml_kit")
pytestmark = pytest.mark.filterwarnings("ignore")

COUNT = int(os.environ.get("ANEFORGE_MUTATIONS", "60"))
SECONDS = 20
EXAMPLES = Path(__file__).parent.parent / "examples"

MIL = """program(1.3)
[buildInfo = dict<string, string>({{"coremlc-version", "1"}})]
{
    func main<ios16>(tensor<fp16, [1, 4, 6, 4]> x) {
            tensor<fp16, []> scale = const()[name = string("scale"), val = fp16(0x1.8p+0)];
            tensor<int32, [4]> perm = const()[name = string("perm"), val = tensor<int32, [4]>([0, 2, 1, 3])];
            tensor<fp16, [1, 4, 6, 4]> a = mul(x = x, y = scale)[name = string("a")];
            tensor<fp16, [1, 6, 4, 4]> y = transpose(x = a, perm = perm)[name = string("y")];
        } -> (y);
}"""


def _graph() -> af.Graph:
    x = af.input((1, 3, 8, 8), name="x")
    return af.Graph.of(af.conv(x, np.ones((4, 3, 3, 3)) / 8).relu().named("y"))


def _saved(folder: Path) -> Path:
    file = folder / "model.anegraph"
    _graph().save(file)
    return file


def _onnx(folder: Path) -> Path:
    file = folder / "model.onnx"
    file.write_bytes((EXAMPLES / "tiny_encoder.onnx").read_bytes())
    return file


def _mil(folder: Path) -> Path:
    file = folder / "model.mil"
    file.write_text(MIL)
    return file


def _plist(folder: Path) -> Path:
    return af.save_netplist(_graph(), folder / "model.plist", overwrite=True).path


def _binary_plist(folder: Path) -> Path:
    return af.save_netplist(_graph(), folder / "model.plist", binary=True, overwrite=True).path


def _package(folder: Path) -> Path:
    weight = np.ones((2, 4, 3, 3), np.float32)
    made = kit.package(folder, lambda x: kit.mb.conv(x=x, weight=weight), [np.zeros((1, 4, 6, 6), np.float32)])
    return next(Path(made).rglob("*.mlmodel"))


FORMATS: dict[str, Callable[[Path], Path]] = {
    "saved graph": _saved,
    "ONNX": _onnx,
    "MIL text": _mil,
    "netplist": _plist,
    "binary netplist": _binary_plist,
    "Core ML package": _package,
}


def mutated(data: bytes, seed: int) -> bytes:
    """One to four changes: bits, bytes, pieces cut out, doubled or moved, the end cut off, numbers made long."""
    draw = random.Random(seed)  # noqa: S311 - damage, not a secret
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(max(1, len(changed)))
        size = draw.randint(1, 24)
        kind = draw.randrange(7)
        if kind == 0 and changed:
            changed[at] ^= 1 << draw.randrange(8)
        elif kind == 1 and changed:
            changed[at] = draw.choice((0, 0xFF, 0x7F, 0x80, draw.randrange(256)))
        elif kind == 2:
            del changed[at : at + size]
        elif kind == 3:
            changed[at:at] = changed[at : at + size] * draw.randint(1, 3)
        elif kind == 4:
            del changed[at:]
        elif kind == 5:
            changed[at:at] = bytes(draw.randrange(256) for _ in range(size))
        else:
            changed[at:at] = b"9" * draw.choice((3, 40, 6000))
    return bytes(changed)


def model_path(file: Path) -> Path:
    inside = [parent for parent in file.parents if parent.suffix == ".mlpackage"]
    return inside[0] if inside else file


def check(file: Path) -> str:
    """What a load gives: a graph, or one line."""
    signal.alarm(SECONDS)
    try:
        with budgets.allow(unpacked_bytes=1 << 28, folded_bytes=1 << 26, folded_work=1 << 28, nodes=5000):
            af.load(model_path(file), dims={"batch": 1} if file.suffix == ".onnx" else None)
    except AneforgeError as error:
        message = str(error)
        assert "\n" not in message
        assert str(file.parent) not in message
        return message
    finally:
        signal.alarm(0)
    return ""


@pytest.fixture(autouse=True)
def _no_hang():
    def stop(*_: Any) -> None:
        raise TimeoutError(f"a load took more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_damaged_file_is_one_line_or_a_graph(tmp_path, kind):
    file = FORMATS[kind](tmp_path)
    sound = file.read_bytes()
    assert check(file) == ""
    refused = 0
    for seed in range(COUNT):
        file.write_bytes(mutated(sound, seed))
        try:
            refused += bool(check(file))
        except Exception as error:
            raise AssertionError(f"{kind}, seed {seed}: {type(error).__name__}: {error}") from error
    assert refused > COUNT // 4


KEPT: list[tuple[str, int]] = [("MIL text", 241), ("saved graph", 0)]
"""(format, seed) of what once did something else."""


@pytest.mark.parametrize(("kind", "seed"), KEPT)
def test_what_was_found_stays_fixed(tmp_path, kind, seed):
    file = FORMATS[kind](tmp_path)
    file.write_bytes(mutated(file.read_bytes(), seed))
    check(file)
