"""What every command shares: the options that have one meaning everywhere, and help that groups commands by task."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperGroup

from aneforge.cli import say

__all__ = [
    "CHECK",
    "COMPILE",
    "DEPLOY",
    "LOOK_UP",
    "MEASURE",
    "RUN",
    "SPELLINGS",
    "AModel",
    "AsJson",
    "Dims",
    "Everything",
    "Function",
    "GroupedCommands",
    "Input",
    "Seed",
    "complete_chips",
    "out_option",
    "with_voice",
]

LOOK_UP, CHECK, COMPILE = "Look up", "Check", "Compile"
RUN, MEASURE, DEPLOY = "Run", "Measure", "Deploy"
_PANELS = (LOOK_UP, CHECK, COMPILE, RUN, MEASURE, DEPLOY)

SPELLINGS = "m1, m1,m5, m1..m6, macs, phones or all (the 28 targets)"
"""How chips are named, in every command."""


def complete_chips(typed: str) -> list[str]:
    """What the last part of a list of chips may become, for the shell."""
    from aneforge.targets import store
    from aneforge.targets.chip import target_names
    from aneforge.targets.listed import GROUPS

    before, comma, last = typed.rpartition(",")
    products = [name.casefold().replace(" ", "-") for name in store.load("names")["products"]]
    known = dict.fromkeys([*products, *target_names(), *GROUPS])
    return [f"{before}{comma}{name}" for name in known if name.startswith(last.casefold())]


AModel = Annotated[
    str,
    typer.Argument(
        help="A model: .onnx, .mlpackage, .mlmodel, .mil, .pt2, .aimodel, a netplist, FILE.py:NAME or a saved graph."
    ),
]
Dims = Annotated[
    list[str] | None, typer.Option("--dim", help="Set a symbolic dimension of the file, NAME=SIZE; repeatable.")
]
Function = Annotated[str | None, typer.Option("--function", help="Choose a function of a file that holds several.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, with the evidence of every value.")]
Everything = Annotated[bool, typer.Option("--all", help="List every node and reason, not only examples with counts.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Draw the inputs from this seed (default: 0).")]
Input = Annotated[str | None, typer.Option("--input", help="Read inputs by name from FILE.npz (default: drawn).")]


def out_option(what: str) -> Any:
    """``--out``, short ``-o``: the one name for a file or folder that a command writes."""
    return typer.Option("--out", "-o", help=what)


_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only, no notes.")]
_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print on stderr what is being done.")]
_Color = Annotated[str, typer.Option("--color", help="Use colours: auto, always or never.")]
_NoCache = Annotated[bool, typer.Option("--no-cache", help="Import the model file again, and store nothing.")]
_VOICE: dict[str, tuple[Any, Any]] = {
    "quiet": (_Quiet, False),
    "verbose": (_Verbose, False),
    "color": (_Color, "auto"),
}


def _cache_off() -> AbstractContextManager[None]:
    from aneforge.cache import place  # brings NumPy and graphs, which commands without a model do not need

    return place.off()


def with_voice(function: Callable[..., None]) -> Callable[..., None]:
    """The command with ``-q``, ``-v`` and ``--color`` after its own options, ``--no-cache`` if it loads a model."""
    hints = get_type_hints(function, include_extras=True)
    loads = AModel in hints.values()
    added = {"no_cache": (_NoCache, False), **_VOICE} if loads else _VOICE

    @wraps(function)
    def spoken(*values: Any, **named: Any) -> None:
        say.set_voice(**{name: named.pop(name) for name in _VOICE})
        with _cache_off() if named.pop("no_cache", False) else nullcontext():
            function(*values, **named)

    signature = inspect.signature(function)
    own = [parameter.replace(annotation=hints[parameter.name]) for parameter in signature.parameters.values()]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in added.items()
    ]
    spoken.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
    spoken.__annotations__ = {**hints, **{name: kind for name, (kind, _) in added.items()}}
    return spoken


class GroupedCommands(TyperGroup):
    """Lists the commands by what somebody wants to do."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {panel: [] for panel in _PANELS}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                panel = getattr(command, "rich_help_panel", None)
                groups.setdefault(panel if isinstance(panel, str) else "Commands", []).append(
                    (name, command.get_short_help_str(limit=200))
                )
        for panel, rows in groups.items():
            if rows:
                with formatter.section(panel):
                    formatter.write_dl(rows)
