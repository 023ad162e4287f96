"""The page of register forms: what is written into a container, and on which evidence, from programs that are built
here."""

from __future__ import annotations

import runpy
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

import aneforge as af
from aneforge.codegen.dialect import written_generations
from aneforge.codegen.emission import emit
from aneforge.codegen.record import BuildRecord
from aneforge.codegen.verdicts import VERDICTS, proven_forms
from aneforge.codegen.words import SAMPLED
from aneforge.graph.tensor import Tensor
from aneforge.study.model import build

__all__ = ["containers", "count_forms"]

_EVERY = "h13"
"""The generation whose tasks are counted."""
_ROOT = Path(__file__).resolve().parents[2]


def _image(channels: int = 64, size: int = 8, name: str = "x", batch: int = 1) -> Tensor:
    return af.input((batch, channels, size, size), name=name)


def _halves(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape)).reshape(shape) % 7 - 3).astype(np.float16) / 8


def _normalised(x: Tensor) -> Tensor:
    return x.layer_norm(np.ones(x.shape[-1]), np.zeros(x.shape[-1]))


def _rectified(x: Tensor) -> Tensor:
    return x.relu()


_FORMS: dict[str, Callable[[], Tensor]] = {
    "sum of two tensors": lambda: _image() + _image(name="z"),
    "difference": lambda: _image() - _image(name="z"),
    "product": lambda: _image() * _image(name="z"),
    "maximum, minimum": lambda: af.maximum(_image(), _image(name="z")),
    "sum, then relu": lambda: _rectified(_image() + _image(name="z")),
    "convolution 1x1": lambda: af.conv(_image(), _halves(64, 64, 1, 1)),
    "convolution 3x3": lambda: af.conv(_image(), _halves(64, 64, 3, 3), pad=1),
    "with bias and relu": lambda: af.conv(_image(), _halves(64, 64, 3, 3), pad=1, bias=_halves(64)).relu(),
    "with a table": lambda: af.conv(_image(), _halves(64, 64, 1, 1)).tanh(),
    "with stride 2": lambda: af.conv(_image(), _halves(64, 64, 3, 3), stride=2, pad=1),
    "odd channels": lambda: af.conv(_image(7), _halves(11, 7, 3, 3)),
    "groups": lambda: af.conv(_image(), _halves(64, 16, 3, 3), pad=1, groups=4),
    "depthwise": lambda: af.conv(_image(), _halves(64, 1, 3, 3), pad=1, groups=64),
    "a kernel of more than a core keeps": lambda: af.conv(_image(256, 14), _halves(256, 256, 3, 3), pad=1),
    "matrix by a constant": lambda: af.matmul(af.input((8, 256), name="x"), _halves(256, 512)),
    "relu": lambda: _image().relu(),
    "sigmoid": lambda: af.input((1, 64, 1, 1), name="x").sigmoid(),
    "other tables (tanh, gelu, exp2, ...)": lambda: _image().tanh(),
    "channels against columns": lambda: _image().transpose((0, 3, 2, 1)),
    "maximum pool": lambda: _image().max_pool(3, 2, 1),
    "average pool": lambda: _image().avg_pool(2),
    "mean, sum over rows and columns": lambda: _image().mean((2, 3)),
    "mean, sum over columns": lambda: _image().mean((3,)),
    "mean, sum over rows": lambda: _image().mean((2,)),
    "mean, sum over channels": lambda: _image().mean((1,)),
    "largest over channels": lambda: _image().amax((1,)),
    "largest, smallest over columns": lambda: _image().amax((3,)),
    "softmax over channels": lambda: _image().softmax(1),
    "softmax over rows": lambda: _image().softmax(2),
    "softmax over columns": lambda: _image().softmax(3),
    "softmax of one row": lambda: af.input((1, 1, 1, 512), name="x").softmax(3),
    "layer norm of one row": lambda: _normalised(af.input((1, 1, 1, 512), name="x")),
    "layer norm over columns": lambda: _normalised(_image()),
    "layer norm over channels": lambda: _image().channel_layer_norm(np.ones(64), np.zeros(64)),
    "layer norm of a matrix, scaled": lambda: af.input((1, 64, 1, 128), name="x").channel_layer_norm(
        _halves(64), _halves(64)
    ),
    "relu6 behind a convolution": lambda: af.conv(_image(), _halves(64, 64, 1, 1)).clip(0, 6),
    "product of two matrices": lambda: af.matmul(af.input((64, 64), name="x"), af.input((64, 64), name="z")),
    "product, second matrix turned": lambda: af.matmul(af.input((64, 64), name="x"), af.input((64, 64), name="z").T),
    "product of 21 rows": lambda: af.matmul(af.input((21, 64), name="x"), af.input((64, 64), name="z")),
    "product of 48 rows": lambda: af.matmul(af.input((48, 64), name="x"), af.input((64, 64), name="z")),
    "channels against rows": lambda: _image().transpose((0, 2, 1, 3)),
    "a row copied to every row": lambda: af.input((1, 1, 1, 375), name="x").tile((1, 1, 375, 1)),
    "a slice of channels": lambda: _image()[:, 16:48],
    "a sum that stretches its second source": lambda: _image() + af.input((1, 64, 1, 1), name="z"),
    "a sum with a number": lambda: _image() + 0.5,
    "a factor for each channel": lambda: _image() * _halves(1, 64, 1, 1),
    "the smaller with a number": lambda: af.minimum(_image(), 0.5),
    "exponential": lambda: _image().exp(),
    "quotient of two tensors": lambda: _image() / _image(name="z"),
    "logarithm": lambda: _image().log(),
    "matrix by a constant, with a bias": lambda: af.linear(
        af.input((64, 256), name="x"), _halves(256, 256), _halves(256)
    ),
    "a batch of sums": lambda: _image(batch=2) + _image(name="z", batch=2),
}
_TEXTS: dict[str, Callable[[], Tensor]] = {
    "a sum with a constant": lambda: _image() + _halves(1, 64, 8, 8),
    "a batch": lambda: _image(batch=2).relu(),
    "layer norm over columns, scaled": lambda: _image().layer_norm(_halves(8), _halves(8)),
    "rounding": lambda: _image().floor(),
    "a copy": lambda: af.concat([_image(), _image(name="z")]).relu(),
}


_NETWORKS = {"examples/resnet.py": "ResNet-18", "examples/vit.py": "ViT-Tiny"}


def containers() -> str:
    """Every form with its words on each generation, what has no form, and what two networks are written with."""
    generations = written_generations()
    parts = [
        "# Register forms",
        "",
        "Which work of a program is said by registers, and how sure is each word? The rows below are small programs",
        "that this page compiles and writes; `container.record` says the same of any program of yours. See",
        "[compiled programs](../guide/containers.md).",
        "",
        "- **published**: a published program of the vendor's compiler has these words.",
        "- **rule**: the rule gives published programs of this generation word for word.",
        "- **analogy**: it does so on another generation, or the register map alone states the words. Nobody has",
        "  shown that this generation takes them.",
        "- **Constants**: `hash` equals published bytes, `formula` follows a published formula, `sampled` is our best",
        "  rule. Sizes of all kernels follow the published sizes.",
        "- `aneforge run` reads the words and constants of every row back, on every generation. Divisions,",
        "  logarithms, softmax, norms and slopes below zero have their text beside them too: their tasks round where",
        "  the op does not.",
        "",
        "## Written from registers",
        "",
        f"| work | tasks | {' | '.join(generations)} | constants |",
        f"| --- | --- |{' --- |' * (len(generations) + 1)}",
    ]
    used: dict[str, None] = {}
    for work, graph in _FORMS.items():
        records = [_record(graph, generation) for generation in generations]
        for record in records:
            if record.not_expressed:
                raise AssertionError(f"{work}: {record}")
        used |= dict.fromkeys(records[0].sampled)
        verdicts = [max((task.verdict for task in record.expressed), key=VERDICTS.index) for record in records]
        words = " | ".join(verdict.split()[-1] for verdict in verdicts)
        tasks = sum(task.passes for task in records[0].expressed)
        constants = "; ".join(dict.fromkeys(task.constants for task in records[0].expressed if task.constants))
        parts.append(f"| {work} | {tasks} | {words} | {constants or 'none'} |")
    parts += [
        "",
        f"Tasks and constants are those of {_EVERY}. Some words rest on less than a rule, on every generation:",
        "",
        "| group of words | what its rule rests on |",
        "| --- | --- |",
    ]
    parts += [f"| `{name}` | {why} |" for name, why in SAMPLED.items()]
    parts += [
        "",
        "## Carried as text",
        "",
        "A task with these extents, strides and buffers is written, with an operation word of zero; the work travels",
        "as backend text in the debug section. `aneforge run` runs it; an engine would not.",
        "",
        "| work | backend op | why |",
        "| --- | --- | --- |",
    ]
    for work, graph in _TEXTS.items():
        for task in _record(graph).not_expressed:
            parts.append(f"| {work} | `{task.form}` | {task.reason} |")
    parts += [
        "",
        f"## Two networks on {_EVERY}",
        "",
        "| network | tasks | what they rest on |",
        "| --- | --- | --- |",
    ]
    left: list[str] = []
    for file, name in _NETWORKS.items():
        record = _record(lambda file=file: build_example(file))
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in record.verdicts.items())
        parts.append(f"| {name} (`{file}`) | {sum(record.verdicts.values())} | {verdicts} |")
        reasons = Counter((task.form, task.reason) for task in record.not_expressed)
        left += [f"| {name} | {count} | `{form}` | {why} |" for (form, why), count in sorted(reasons.items())]
    parts += [
        "",
        "These tasks of them are text:",
        "",
        "| network | tasks | backend op | why |",
        "| --- | --- | --- | --- |",
    ]
    parts += left
    parts += [
        "",
        "## What is proven",
        "",
        "These kinds of work, and additions to them, come out word for word in a published program of the generation.",
        "",
        "| generation | proven |",
        "| --- | --- |",
    ]
    parts += [f"| {generation} | {', '.join(proven_forms(generation))} |" for generation in generations]
    parts += [
        "",
        "343 programs of the vendor's compiler are in the tests, with their words:",
        "`python bench/vendor_programs.py tests/evidence/vendor_programs.json.gz` compiles each network and prints",
        "how many come out word for word, by generation and by kind, and why others do not. With `--left-out` each",
        "program is judged without the values that only it is evidence of.",
        "",
    ]
    return "\n".join(parts)


def build_example(file: str) -> Tensor:
    """The output of an example's graph."""
    found = runpy.run_path(str(_ROOT / file))["out"]
    assert isinstance(found, Tensor)
    return found


def count_forms() -> tuple[int, int]:
    """How many kinds of work this page writes from registers, and how many it carries as text."""
    return len(_FORMS), len(_TEXTS)


def _record(graph: Callable[[], Tensor], generation: str = _EVERY) -> BuildRecord:
    record = emit(build(graph(), generation).program).record
    assert record is not None
    return record
