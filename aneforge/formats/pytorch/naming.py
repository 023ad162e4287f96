"""Names of ops for users: the path of the module that ran the op, and the op."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any

_PLAIN = ("torch.nn.modules.",)


class ModuleNames:
    """Unique names for the nodes of a program.

    The last op of a module that PyTorch itself wrote (a Linear, a LayerNorm) has the module's path as its name;
    every other op has the path of the module whose ``forward`` called it, and its own name.
    """

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.last: dict[str, Any] = {}

    def record_last_ops(self, nodes: Any) -> None:
        """Record the last op of each call of a module; a getitem does not count."""
        for node in nodes:
            if node.op == "call_function" and "getitem" not in str(node.target):
                self.last[_call(node)] = node

    def name_for(self, node: Any) -> str:
        path, kind = _module(node)
        base = str(getattr(node.target, "__name__", node.target)).split(".")[0].strip("_") or "op"
        ends = path and kind.startswith(_PLAIN) and self.last.get(_call(node)) is node
        return self.unique(path if ends else f"{path}.{base}" if path else base)

    def unique(self, name: str) -> str:
        candidate, number = name, 0
        while candidate in self.used:
            number += 1
            candidate = f"{name}_{number}"
        self.used.add(candidate)
        return candidate


_LINE = re.compile(r'File "([\w ./\\:+-]+)", line (\d+)')
_MOST_LETTERS = 1 << 16  # of a trace that is looked through


def plain_trace(trace: Any) -> str:
    """The last line of the model's own code that a trace names, in PyTorch's form; empty where it names none. A trace
    of a file is a stranger's text, and PyTorch writes traces into code."""
    lines = _LINE.findall(trace[-_MOST_LETTERS:]) if isinstance(trace, str) else []
    places = [line for line in lines if "/torch/" not in line[0]] or lines
    return f'File "{places[-1][0]}", line {places[-1][1]}' if places else ""


def place_of(node: Any) -> tuple[str, str]:
    """The path of the module that ran a node, and the line of the model's own code."""
    trace = _LINE.search(plain_trace(node.meta.get("stack_trace")))
    line = "" if trace is None else f"{PurePath(trace[1]).name}:{trace[2]}"
    return _module(node)[0], line


def _stack(node: Any) -> list[tuple[str, Any]]:
    return list((node.meta.get("nn_module_stack") or {}).items())


def _call(node: Any) -> str:
    """Return a key for one call of a module; the second call of a shared module has another key."""
    stack = _stack(node)
    return stack[-1][0] if stack else ""


def _module(node: Any) -> tuple[str, str]:
    stack = _stack(node)
    if not stack:
        return "", ""
    path, kind = stack[-1][1]
    path = str(path).removeprefix("L['self']").lstrip(".")
    return path, kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
