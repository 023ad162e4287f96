"""One entry point for all model files: it reads a file and returns a graph whose nodes have the file's names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aneforge.errors import LoadError
from aneforge.files import regular_file
from aneforge.formats.cache import load_once
from aneforge.formats.kinds import ending_of
from aneforge.graph.graph import Graph, load_graph
from aneforge.graph.node import made_from
from aneforge.graph.recognise import recognised

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor

__all__ = ["FORMATS", "Format", "LoadError", "from_torch", "load", "load_graph", "onnx_graph", "onnx_to_tensor"]


@dataclass(frozen=True)
class Format:
    """One kind of model file: its name, its reader, and the options of the reader."""

    name: str
    reader: str
    options: tuple[str, ...] = ("dims", "fixed")
    folder: bool = False
    converted: bool = True
    """Whether a converter stands between the file and the engine, which recognises layers; a netplist is taken at its
    word."""

    def read(self, file: Path, **options: Any) -> Graph:
        """The graph of a file, from the cache if it was read before."""
        taken = {name: options[name] for name in self.options}
        with made_from(file.name):
            return load_once(file, {"format": self.name, **taken}, lambda: self._read(file, taken))

    def _read(self, file: Path, options: Mapping[str, Any]) -> Graph:
        module, _, function = self.reader.partition(":")
        reader: Callable[..., Graph] = getattr(import_module(module), function)
        graph = reader(file, **options)
        return recognised(graph).graph if self.converted else graph


FORMATS: dict[str, Format] = {
    ".onnx": Format("ONNX", "aneforge.formats.onnx.adapter:read"),
    ".mlpackage": Format("Core ML package", "aneforge.formats.coreml:read", ("dims", "fixed", "function"), True),
    ".mlmodel": Format("Core ML model", "aneforge.formats.coreml:read", ("dims", "fixed", "function")),
    ".mlmodelc": Format(
        "compiled Core ML model", "aneforge.formats.coreml:read_compiled", ("dims", "fixed", "function"), True
    ),
    ".mil": Format("MIL text", "aneforge.formats.coreml:read_text", ("dims", "fixed", "function")),
    ".pt2": Format("PyTorch exported program", "aneforge.formats.pytorch.adapter:read"),
    ".aimodel": Format("Core AI", "aneforge.formats.coreai.adapter:read", ("function",), True),
    ".plist": Format("netplist", "aneforge.formats.netplist:read", ("function",), converted=False),
    ".net": Format("netplist", "aneforge.formats.netplist:read", ("function",), converted=False),
}
"""The formats that are read besides aneforge's own archive, by file name extension."""

for _package in ("coreai", "coreml", "onnx", "pytorch"):
    import_module(f"{__name__}.{_package}")  # small: each says who computes its host ops, and imports no reader


def load(
    path: str | Path,
    dims: Mapping[str, int] | None = None,
    fixed: Mapping[str, Any] | None = None,
    function: str | None = None,
) -> Graph:
    """The graph in a model file. ``dims`` gives values to the symbolic dimensions of its inputs, ``fixed`` to inputs
    that are the same in every run (sizes, axes, masks). ``function`` names one of several functions in the file."""
    file = Path(path)
    if not file.exists():
        if re.fullmatch(r"[\w.-]+/[\w.-]+", str(path)) and not file.suffix and not file.parent.exists():
            raise LoadError(
                f"{str(path)!r}: no such file; models of a hub are not loaded. Export it to ONNX, Core ML or "
                "torch.export and give the file"
            )
        raise LoadError(f"{str(path)!r}: no such file; check the path")
    model_format = FORMATS.get(ending_of(file))
    if not file.is_dir():
        regular_file(file, file.name)
    options = {"dims": dict(dims or {}), "fixed": dict(fixed or {}), "function": function}
    takes = model_format.options if model_format else ()
    unused = [name for name, value in options.items() if value and name not in takes]
    if unused:
        takers = ", ".join(model_format.name for model_format in FORMATS.values() if unused[0] in model_format.options)
        format_name = model_format.name if model_format else "a saved graph"
        raise LoadError(f"{file.name}: {format_name} does not take {unused[0]}; it is for {takers}")
    if model_format is None:
        with made_from(file.name):
            return load_graph(file)
    return model_format.read(file, **options)


def onnx_graph(
    model: Any,
    dims: Mapping[str, int] | None = None,
    fixed: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
) -> Graph:
    """The graph in an ONNX file with any extension, or in an ``onnx.ModelProto``.

    A ``ModelProto`` whose weights are in other files is read with ``folder``, the folder that holds them.
    """
    if not isinstance(model, (str, Path)):
        from aneforge.formats.onnx.adapter import read_model

        graph = read_model(model, dims or {}, fixed or {}, None if folder is None else Path(folder))
        return recognised(graph).graph
    file = Path(model)
    if not file.exists():
        raise LoadError(f"{str(model)!r}: no such file; check the path")
    if folder is not None:
        raise LoadError(
            f"{file.name}: folder is only for a ModelProto; the weights of a file are read from its own folder"
        )
    regular_file(file, file.name)
    return FORMATS[".onnx"].read(file, dims=dict(dims or {}), fixed=dict(fixed or {}))


def onnx_to_tensor(
    model: Any,
    dims: Mapping[str, int] | None = None,
    fixed: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
) -> tuple[list[Tensor], Tensor | list[Tensor]]:
    """The inputs of an ONNX model (a path, or an ``onnx.ModelProto``) in the file's order, and its output, or a list
    where it has several: ``(x,), y = af.onnx_to_tensor("net.onnx")``, then ``af.compile(y.softmax())``.

    ``fixed`` gives values to inputs, as for ``af.load``. Weights of a ``ModelProto`` that are in other files are read
    only from ``folder``; without one they are refused.
    """
    graph = onnx_graph(model, dims, fixed, folder)
    return list(graph.inputs), graph.outputs[0] if len(graph.outputs) == 1 else list(graph.outputs)


def from_torch(module: Any, example_inputs: Any, **settings: Any) -> Graph:
    """The graph of a PyTorch module, through ``torch.export``; buffers that it changes become states.

    ``example_inputs`` are tensors in the order of the module's arguments; the graph has their sizes. ``settings`` are
    ``example_kwargs`` (arguments by name), ``dynamic`` (dynamic shapes for ``torch.export``), ``fixed`` (inputs that
    are the same in every run) and ``names`` (other names of inputs and outputs).
    """
    from aneforge.formats.pytorch.adapter import from_torch as reader

    return recognised(reader(module, example_inputs, **settings)).graph
