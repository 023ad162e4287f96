"""What ``--help`` of a command looks like: examples one below the other, and words for what an option takes."""

from __future__ import annotations

import re
from typing import Any

from typer.core import TyperCommand

__all__ = ["HelpfulCommand"]

_TAKES = {
    "target": "CHIPS",
    "out": "FILE",
    "inputs": "FILE.npz",
    "calibration": "FILE.npz",
    "baseline": "FILE",
    "junit": "FILE",
    "sarif": "FILE",
    "plot": "FILE.svg",
    "diff": "OTHER",
    "dim": "NAME=SIZE",
    "max_us": "TARGET=NUMBER",
    "function": "NAME",
    "explain": "NODE",
    "reference": "CHIP",
    "route": "ROUTE",
    "passes": "PASSES",
}
"""What stands behind an option where its type says nothing, by the name of its parameter."""

_EXAMPLES = re.compile(r"Examples?:\s+")


class HelpfulCommand(TyperCommand):
    """A command whose docstring ends with ``Examples:  one   |   another``."""

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__(*values, **named)
        for parameter in self.params:
            if parameter.metavar is None:  # type: ignore[attr-defined]
                argument = parameter.param_type_name == "argument"
                name = str(parameter.name)
                parameter.metavar = name.upper() if argument else _TAKES.get(name)  # type: ignore[attr-defined]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        words, *examples = _EXAMPLES.split(self.help or "", maxsplit=1)
        whole, self.help = self.help, words.rstrip()
        try:
            super().format_help_text(ctx, formatter)
        finally:
            self.help = whole
        if examples:
            with formatter.section("Examples"):
                for example in examples[0].split("|"):
                    formatter.write(f"{'':{formatter.current_indent}}{' '.join(example.split())}\n")
