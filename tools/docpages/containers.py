"""The page of register forms: what is written into a container, and on which evidence, from programs that are built
here."""

from __future__ import annotations

from collections.abc import Callable

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
"""The generation whose programs are written in every form."""


def _image(channels: int = 64, size: int = 8, name: str = "x", batch: int = 1) -> Tensor:
    return af.input((batch, channels, size, size), name=name)


def _halves(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape)).reshape(shape) % 7 - 3).astype(np.float16) / 8


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
    "a kernel in passes": lambda: af.conv(_image(256, 14), _halves(512, 256, 3, 3), stride=2, pad=1),
    "matrix by a constant": lambda: af.matmul(af.input((8, 256), name="x"), _halves(256, 512)),
    "relu": lambda: _image().relu(),
    "sigmoid": lambda: af.input((1, 64, 1, 1), name="x").sigmoid(),
    "other tables (tanh, gelu, exp2, ...)": lambda: _image().tanh(),
    "channels against columns": lambda: _image().transpose((0, 3, 2, 1)),
    "maximum pool": lambda: _image().max_pool(3, 2, 1),
    "average pool": lambda: _image().avg_pool(2),
    "mean, sum over axes": lambda: _image().mean((2, 3)),
    "largest, smallest over axes": lambda: _image().amax((3,)),
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
    "relu6": lambda: _image().relu6(),
    "another transpose": lambda: _image().transpose((0, 2, 1, 3)),
    "a product of two tensors, 8 rows": lambda: af.matmul(af.input((8, 64), name="x"), af.input((64, 8), name="z")),
    "softmax": lambda: af.input((8, 64), name="x").softmax(-1),
    "layer norm": lambda: af.input((8, 64), name="x").layer_norm(_halves(64), _halves(64)),
    "a copy": lambda: af.concat([_image(), _image(name="z")]).relu(),
}


def containers() -> str:
    """Every form with its words and constants, what has no form, and the forms of other generations."""
    parts = [
        "# Register forms",
        "",
        "Which work of a program is said by registers, and how sure is each word? The rows below are small programs",
        "that this page compiles and writes; `container.record` says the same of any program of yours. See",
        "[compiled programs](../guide/containers.md).",
        "",
        "- **Words**: `as published`, a published program has them; `by rule`, the rule gives published programs of",
        "  this generation word for word; `by analogy`, it does so on another generation, or the register map alone",
        "  states them. A name behind it stands for a group of words by analogy; the list is below.",
        "- **Constants**: `hash` equals published bytes, `formula` follows a published formula, `sampled` is our best",
        "  rule. Sizes of all kernels follow the published sizes.",
        "- `aneforge run` reads the words and constants of every row back, on every generation. Only divisions,",
        "  logarithms and slopes below zero have their text beside them too: their tasks round where the op does not.",
        "",
        f"## Written from registers ({_EVERY})",
        "",
        "| work | tasks | words | constants |",
        "| --- | --- | --- | --- |",
    ]
    used: dict[str, None] = {}
    for work, graph in _FORMS.items():
        record = _record(graph)
        if record.not_expressed:
            raise AssertionError(f"{work}: {record}")
        sampled = list(record.sampled)
        used |= dict.fromkeys(sampled)
        verdict = max((task.verdict for task in record.expressed), key=VERDICTS.index)
        tasks = sum(task.passes for task in record.expressed)
        constants = "; ".join(dict.fromkeys(task.constants for task in record.expressed if task.constants))
        words = verdict + "".join(f", `{name}`" for name in sampled)
        parts.append(f"| {work} | {tasks} | {words} | {constants or 'none'} |")
    parts += ["", "| group of words | what its rule rests on |", "| --- | --- |"]
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
        "## Generations",
        "",
        "Every generation writes every form. These kinds of work, and additions to them, come out word for word in a",
        "published program of the generation; the others are by analogy.",
        "",
        "| generation | by rule |",
        "| --- | --- |",
    ]
    parts += [f"| {generation} | {', '.join(proven_forms(generation))} |" for generation in written_generations()]
    parts += [
        "",
        "343 programs of the vendor's compiler are in the tests, with their words:",
        "`python bench/vendor_programs.py tests/evidence/vendor_programs.json.gz` compiles each network and prints",
        "how many come out word for word, by generation and by kind, and why others do not.",
        "",
    ]
    return "\n".join(parts)


def count_forms() -> tuple[int, int]:
    """How many kinds of work this page writes from registers, and how many it carries as text."""
    return len(_FORMS), len(_TEXTS)


def _record(graph: Callable[[], Tensor]) -> BuildRecord:
    record = emit(build(graph(), _EVERY).program).record
    assert record is not None
    return record
