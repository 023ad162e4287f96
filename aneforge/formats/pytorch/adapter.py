# pyright: reportMissingImports=false
"""Read PyTorch modules and exported programs op by op.

``torch.export`` gives the program. Ops that have a rule are kept; PyTorch decomposes the others. The ATen op itself
computes a node whose inputs are all known, so constants and shape computations need no rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aneforge.errors import AneforgeError, LoadError, install_hint
from aneforge.graph.graph import Graph
from aneforge.process import quiet_warnings

_HINT = "Run torch.export.export(module, inputs) for the full message"


def from_torch(
    module: Any,
    example_inputs: Sequence[Any],
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic: Any = None,
    fixed: Mapping[str, Any] | None = None,
    names: Sequence[str] | Mapping[str, str] | None = None,
) -> Graph:
    """Return the graph of a module for inputs of the sizes of the examples.

    ``dynamic`` is passed to ``torch.export`` as its dynamic shapes, for a module that cannot be exported without them;
    the sizes are still those of the examples. ``fixed`` gives inputs that are the same in every run, by name.
    ``names`` renames the outputs in order, or any input or output by its name. Buffers that the module writes to (a
    cache of keys and values) become states: inputs and outputs of the graph.
    """
    torch = _torch()
    if not isinstance(module, torch.nn.Module):
        raise LoadError(f"the model is a {type(module).__name__} object; expected a torch.nn.Module")
    examples = tuple(example_inputs) if isinstance(example_inputs, (list, tuple)) else (example_inputs,)
    what = type(module).__name__
    with quiet_warnings():
        try:
            program = torch.export.export(module, examples, dict(example_kwargs or {}), dynamic_shapes=dynamic)
        except Exception as error:  # tracing runs the user's own code
            raise LoadError(f"{what}: torch.export cannot trace the module ({_line(error)}). {_HINT}") from None
    sizes = _example_sizes(torch, program, examples, dict(example_kwargs or {}))
    return _graph(program, what, sizes, fixed or {}, names)


def from_exported(
    program: Any,
    dims: Mapping[str, int] | None = None,
    fixed: Mapping[str, Any] | None = None,
    names: Sequence[str] | Mapping[str, str] | None = None,
) -> Graph:
    """Return the graph of an exported program. ``dims`` gives sizes to its symbolic dimensions: ``{"x[0]": 4}``."""
    torch = _torch()
    if not isinstance(program, torch.export.ExportedProgram):
        raise LoadError(f"the program is a {type(program).__name__} object; expected a torch.export.ExportedProgram")
    return _graph(program, "exported program", dims or {}, fixed or {}, names)


def read(file: Path, dims: Mapping[str, int], fixed: Mapping[str, Any]) -> Graph:
    """Return the graph of a ``.pt2`` file that ``torch.export.save`` wrote."""
    _torch(f"{file.name}: ")
    from aneforge.formats.pytorch.archive import program_in

    with quiet_warnings():
        program, release = program_in(file)
    return _graph(program, file.name, dims, fixed, None, release)


def _torch(where: str = "") -> Any:
    try:
        import torch
        import torch.export
    except ModuleNotFoundError:
        raise LoadError(f"{where}reading PyTorch needs the torch package: {install_hint('torch')}") from None
    return torch


def _line(error: BaseException) -> str:
    text = next((line for line in str(error).splitlines() if line.strip()), "no message")
    return f"{type(error).__name__}: {text.strip()[:200]}"


def _graph(
    program: Any,
    what: str,
    dims: Mapping[str, int],
    fixed: Mapping[str, Any],
    names: Sequence[str] | Mapping[str, str] | None,
    release: Callable[[], None] | None = None,
) -> Graph:
    from aneforge.formats.pytorch.program import import_program

    with quiet_warnings():
        try:
            lowered = program.run_decompositions(_decompositions())
        except AneforgeError:
            raise
        except Exception as error:
            raise LoadError(f"{what}: PyTorch cannot decompose the program ({_line(error)}). {_HINT}") from None
        return import_program(lowered, what, dims, fixed, names, release)


def _decompositions() -> Any:
    """Return PyTorch's decompositions without those of ops that the reader has an answer for."""
    import torch

    from aneforge.formats.pytorch.host import is_kept
    from aneforge.formats.pytorch.table import plain_name

    table = torch.export.default_decompositions()
    for op in list(table.keys()):
        if is_kept(*plain_name(str(op))):
            table.pop(op)
    return table


def _example_sizes(torch: Any, program: Any, args: Any, kwargs: Any) -> dict[str, int]:
    """Return the sizes of the examples by input and axis, for programs with open sizes."""
    leaves = torch.utils._pytree.tree_leaves((args, kwargs))
    names = program.graph_signature.user_inputs
    sizes = {}
    for name, leaf in zip(names, leaves, strict=False):
        if isinstance(leaf, torch.Tensor):
            sizes |= {f"{name}[{axis}]": int(extent) for axis, extent in enumerate(leaf.shape)}
    return {"": 0} | sizes if sizes else {}
