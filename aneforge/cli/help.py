"""What ``--help`` of a command looks like: what to write first, examples, options by what they belong to."""

from __future__ import annotations

import inspect
from typing import Any

from typer.core import TyperCommand

_EXAMPLES = "Examples:"
_TAKES = {
    "against": "FILE",
    "against_target": "CHIPS",
    "baseline": "FILE",
    "budget": "COUNT",
    "build": "BUILD",
    "by": "WAY",
    "calibration": "FILE.npz",
    "changes": "COUNT",
    "color": "WHEN",
    "data": "FILE.npz",
    "diff": "OTHER",
    "dim": "NAME=SIZE",
    "encodings": "NAMES",
    "every": "STEPS",
    "explain": "NODE",
    "fail_above": "STEPS",
    "fail_on": "OUTCOMES",
    "format_name": "FORMAT",
    "function": "NAME",
    "host": "ADDRESS",
    "inputs": "FILE.npz",
    "junit": "FILE",
    "loss": "KIND",
    "loss_scale": "FACTOR",
    "lr": "RATE",
    "max_abs": "NUMBER",
    "max_memory": "SIZE",
    "max_seconds": "SECONDS",
    "max_upload": "SIZE",
    "max_us": "TARGET=NUMBER",
    "measured": "FILE",
    "method": "METHOD",
    "metric": "METRIC",
    "mode": "MODE",
    "model": "FILE",
    "optimizer": "NAME",
    "overflow": "WHAT",
    "params": "JSON",
    "passes": "PASSES",
    "picture": "FILE.svg",
    "port": "NUMBER",
    "reference": "CHIP",
    "region": "NUMBER",
    "resume": "FILE",
    "route": "ROUTE",
    "runtimes": "NAMES",
    "samples": "COUNT",
    "sarif": "FILE",
    "scheduler": "ADDRESS",
    "scope": "SCOPE",
    "seed": "NUMBER",
    "shapes": "SHAPES",
    "shard": "I/N",
    "skip": "CHECKS",
    "source": "NAME",
    "sparsity": "SHARE",
    "steps": "COUNT",
    "system": "NAME",
    "target": "CHIPS",
    "target_error": "ERROR",
    "task": "NUMBER",
    "tolerance": "PERCENT",
    "workers": "COUNT",
}
"""What stands behind an option, by the name of its parameter."""

_OF_THE_FILE = ("dim", "function", "no_cache")
_OF_EVERY_COMMAND = ("quiet", "verbose", "color", "help")


def words_and_examples(help_text: str | None) -> tuple[str, list[str]]:
    """A docstring in two parts: the words, and the commands below ``Examples:``, one a line."""
    words, _, examples = inspect.cleandoc(help_text or "").partition(f"\n{_EXAMPLES}\n")
    return words.strip(), [line.strip() for line in examples.splitlines() if line.strip()]


class HelpfulCommand(TyperCommand):
    """A command whose docstring ends with examples."""

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__(*values, **named)
        for parameter in self.params:
            if parameter.metavar is None:  # type: ignore[attr-defined]
                argument = parameter.param_type_name == "argument"
                name = str(parameter.name)
                parameter.metavar = name.upper() if argument else _TAKES.get(name)  # type: ignore[attr-defined]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Arguments and required options first: what somebody has to write."""
        pieces = []
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                name = _argument(parameter)
                pieces.append(name if parameter.required else f"[{name}]")
            elif parameter.required:
                pieces.append(f"{max(parameter.opts, key=len)} {parameter.metavar}")  # type: ignore[attr-defined]
        return [*pieces, "[OPTIONS]"]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        whole = self.help
        self.help, examples = words_and_examples(whole)
        try:
            super().format_help_text(ctx, formatter)
        finally:
            self.help = whole
        if examples:
            with formatter.section("Examples"):
                for example in examples:
                    formatter.write(f"{'':{formatter.current_indent}}{example}\n")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                sections["Arguments"].append((_argument(parameter), str(getattr(parameter, "help", "") or "")))
            elif (record := parameter.get_help_record(ctx)) is not None:
                sections.setdefault(_section(str(parameter.name)), []).append(record)
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _argument(parameter: Any) -> str:
    return f"{parameter.metavar}{'' if parameter.nargs == 1 else '...'}"


def _section(name: str) -> str:
    if name in _OF_THE_FILE:
        return "Options of the model file"
    return "Options of every command" if name in _OF_EVERY_COMMAND else "Options"
