"""The options, model files and output files that several commands take: one wording each, wherever they appear."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aneforge.errors import AneforgeError, shortened
from aneforge.text import whole_number

if TYPE_CHECKING:
    from aneforge.graph.graph import Graph


# The model that a command was asked to read: a file, the sizes of its symbolic dimensions, and its function.


@dataclass(frozen=True)
class ModelFile:
    """A path, the sizes that ``--dim`` gives (``batch=1``), and which of the file's functions is meant."""

    path: str
    dims: Sequence[str] = ()
    function: str | None = None

    @classmethod
    def of(cls, model: str | ModelFile) -> ModelFile:
        return model if isinstance(model, ModelFile) else cls(model)

    def __str__(self) -> str:
        return self.path

    @property
    def name(self) -> str:
        """The file without its folders, for somebody who waits."""
        return Path(self.path).name

    @property
    def options(self) -> dict[str, Any]:
        """``dims`` and ``function``, as the functions of the library take them."""
        return {"dims": _sizes(self.dims), "function": self.function}

    @property
    def asked(self) -> dict[str, int | tuple[int, int]]:
        """What ``--dim`` gives: sizes, and ranges as first and last (``seq=1..512``)."""
        return _asked(self.dims)


def load_model(model: str | ModelFile) -> Graph:
    """The graph in the file."""
    from aneforge.formats.arguments import graph_of  # brings NumPy, and every command is declared with a ModelFile

    file = ModelFile.of(model)
    return graph_of(file.path, **file.options)


def _sizes(options: Sequence[str]) -> dict[str, int]:
    sizes = {}
    for name, size in _asked(options).items():
        if not isinstance(size, int):
            text = f"{name}={size[0]}..{size[1]}"
            raise AneforgeError(
                f"--dim {text}: this command takes one size. Write for instance --dim {name}={size[1]}."
            )
        sizes[name] = size
    return sizes


def _asked(options: Sequence[str]) -> dict[str, int | tuple[int, int]]:
    """Sizes, and ranges as first and last."""
    asked: dict[str, int | tuple[int, int]] = {}
    for option in options:
        name, _, size = option.rpartition("=")
        words, dots, end = size.partition("..")
        first, last = whole_number(words), whole_number(end if dots else words)
        if not name or not first or last is None:
            raise AneforgeError(f"--dim {shortened(option)}: the form is NAME=SIZE. Write for instance --dim batch=1.")
        if last < first:
            raise AneforgeError(
                f"--dim {option}: the range ends before it begins. Write --dim {name}={last}..{first}."
            )
        asked[name] = (first, last) if last > first else first
    return asked


# Chips.

SPELLINGS = "m1, m1,m5, m1..m6, macs, phones or all (the 28 targets)"
"""How chips are named, in every command."""


def complete_chips(typed: str) -> list[str]:
    """What the last part of a list of chips may become, for the shell."""
    from aneforge.chips import store
    from aneforge.chips.chip import target_names
    from aneforge.chips.devices import device_names, split_names
    from aneforge.chips.names import GROUPS

    last = split_names(typed)[-1]
    before = typed[: len(typed) - len(last)]
    products = [name.casefold().replace(" ", "-") for name in store.load("names")["products"]]
    known = dict.fromkeys([*products, *device_names(), *target_names(), *GROUPS])
    return [f"{before}{name}" for name in known if last or name not in device_names() if _starts(name, last)]


def _starts(name: str, typed: str) -> bool:
    return name.casefold().startswith(typed.casefold())


def chips_option(what: str = "Chips", words: str | None = None) -> Any:
    """``--target``: one meaning and one set of spellings in every command."""
    return typer.Option("--target", help=words or f"{what}: {SPELLINGS}.", autocompletion=complete_chips)


def chip_option(words: str) -> Any:
    """``--target`` of a command that takes one chip."""
    return typer.Option("--target", help=words, metavar="CHIP", autocompletion=complete_chips)


Chips = Annotated[str, chips_option()]
OneChip = Annotated[str, chip_option("One chip (m1) or compiler target (h13g).")]

# What goes in. The options of a model file are added to every command that takes one (commands.py).


def model_argument(words: str) -> Any:
    """``MODEL``: a file, which the command gets as a ``ModelFile`` with the sizes and the function that were named."""
    return typer.Argument(help=words, parser=ModelFile)


AModel = Annotated[
    ModelFile,
    model_argument(
        "A model: .onnx, .mlpackage, .mlmodel, .mlmodelc, .mil, .pt2, .aimodel, a netplist, FILE.py:NAME or a saved "
        "graph."
    ),
]
Dims = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        help="Set an open dimension of the file, NAME=SIZE; repeatable. check, partition and estimate also take "
        "NAME=FIRST..LAST.",
    ),
]
Function = Annotated[str | None, typer.Option("--function", help="Choose a function of a file that holds several.")]
Input = Annotated[
    str | None, typer.Option("--input", help="Read the inputs by name from FILE.npz (default: drawn from a seed).")
]
SeenInput = Annotated[
    str | None, typer.Option("--input", help="Take the ranges from a run on the inputs in FILE.npz, by name.")
]
Seed = Annotated[int | None, typer.Option("--seed", help="Draw the inputs from this seed (default: 0).")]
MaxAbs = Annotated[
    float | None,
    typer.Option("--max-abs", help="The largest magnitude of any input (default: what the model promises)."),
]

# How it is worked out.

Mode = Annotated[
    str,
    typer.Option("--mode", help="How sums are simulated: exact, or fast (in single precision, rounded once)."),
]
Scope = Annotated[
    str | None,
    typer.Option(
        "--scope",
        help="What the time covers: coreml_call (in an app), coreai_call, app_call, direct_call (without Core ML), "
        "host_call (a call from Python) or device_task (the engine alone) (default: a call of who runs the model, "
        "coreml_call where nobody is asked about).",
    ),
]
Changes = Annotated[
    int, typer.Option("--changes", help="Work out this many changes that would help on each chip; 0 leaves them out.")
]
Passes = Annotated[
    str,
    typer.Option("--pass", help="Passes, separated by commas, or a whole phase: fuse, legalise, schedule, memory."),
]
Loss = Annotated[
    str,
    typer.Option(
        help="What the model gives: output (the loss itself), or mse or cross-entropy of it and an array 'target' of "
        "the data."
    ),
]
LossScale = Annotated[
    float, typer.Option(help="Multiply the loss by this for the gradients, so that fp16 holds small ones.")
]
MaxSeconds = Annotated[float, typer.Option("--max-seconds", help="Allow one model this many seconds.")]
MaxMemory = Annotated[str, typer.Option("--max-memory", help="Allow one model this much memory, such as 512M or 8G.")]


def route_option(default: str) -> Any:
    """``--route``: one meaning in every command; only the default differs."""
    return typer.Option(
        "--route",
        help=f"How a program reaches the chip: conversion (through Core ML) or direct (authored layers){default}.",
    )


USUAL_ROUTE = " (default: direct below A13, else conversion)"

# What comes out.


def out_option(what: str, takes: str = "FILE") -> Any:
    """``--out``, short ``-o``: the one name for a file or folder that a command writes."""
    return typer.Option("--out", "-o", help=what, metavar=takes)


Code = Annotated[str | None, out_option("Write the code to this file instead of printing it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, with the evidence of every value.")]
Everything = Annotated[bool, typer.Option("--all", help="List every node and reason, not only examples with counts.")]


# Files that a command will write: refused before the work where they cannot be, not after it.


def require_file(path: str | Path | None, option: str = "--out") -> None:
    """Refuse a folder, and a file in a folder that is not there or that this user cannot write to."""
    if path is None:
        return
    file = Path(path)
    if file.is_dir():
        raise AneforgeError(f"{option} {path}: this is a folder; give the name of a file, as {file / 'NAME'}.")
    if not file.parent.is_dir():
        raise AneforgeError(f"{option} {path}: the folder {file.parent} does not exist. Create it, or choose another.")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise AneforgeError(f"{option} {path}: the folder {file.parent} cannot be written. Choose another.")
