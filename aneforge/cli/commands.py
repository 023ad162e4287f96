"""How a command is declared: its group of the help, and the options that every command has."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import wraps
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperGroup

from aneforge.cli import say
from aneforge.cli.help import HelpfulCommand
from aneforge.cli.model_file import ModelFile
from aneforge.cli.options import Dims, Function

LOOK_UP, CHECK, COMPILE = "Look up", "Check", "Compile"
RUN, MEASURE, DEPLOY = "Run", "Measure", "Deploy"
_PANELS = (LOOK_UP, CHECK, COMPILE, RUN, MEASURE, DEPLOY)

_Added = dict[str, tuple[Any, Any]]  # the annotation and the default of each option, by its parameter
_NoCache = Annotated[bool, typer.Option("--no-cache", help="Import the model file again, and store nothing.")]
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only, no notes.")]
_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print on stderr what is being done.")]
_Color = Annotated[str, typer.Option("--color", help="Use colours: auto, always or never.")]
_OF_A_FILE: _Added = {"dim": (Dims, None), "function": (Function, None)}
_VOICE: _Added = {"quiet": (_Quiet, False), "verbose": (_Verbose, False), "color": (_Color, "auto")}

Declared = Callable[..., None]


class Commands:
    """Commands that the help lists under one heading: verbs of ``aneforge`` itself, or of a verb such as ``ci``."""

    def __init__(self, panel: str, name: str | None = None, purpose: str | None = None, **settings: Any) -> None:
        self.panel, self.name = panel, name
        settings = {"cls": ListedCommands, "no_args_is_help": True, "rich_markup_mode": None, **settings}
        self.typer = typer.Typer(name=name, help=purpose, **settings)

    def add(self, name: str | None = None) -> Callable[[Declared], Declared]:
        """Declare a command; its name is the function's unless another is given."""

        def register(function: Declared) -> Declared:
            command = self.typer.command(name, cls=HelpfulCommand, rich_help_panel=self.panel)
            command(_with_common_options(function))
            return function

        return register

    def add_to(self, app: typer.Typer) -> None:
        """Put them into the program; those without a name of their own become verbs of the program."""
        if self.name is None:
            app.registered_commands.extend(self.typer.registered_commands)
        else:
            app.add_typer(self.typer, name=self.name, rich_help_panel=self.panel)


def _with_common_options(function: Declared) -> Declared:
    """The command with the options that all have after its own, and those of a model file if it takes one."""
    hints = get_type_hints(function, include_extras=True)
    model = next((name for name, hint in hints.items() if ModelFile in get_args(hint)[:1]), None)
    added = {**(_OF_A_FILE if model else {}), **({"no_cache": (_NoCache, False)} if model else {}), **_VOICE}

    @wraps(function)
    def command(*values: Any, **named: Any) -> None:
        say.set_voice(**{name: named.pop(name) for name in _VOICE})
        if model is not None:
            named[model] = replace(named[model], dims=named.pop("dim") or (), function=named.pop("function"))
        with _cache_off() if named.pop("no_cache", False) else nullcontext():
            function(*values, **named)

    signature = inspect.signature(function)
    own = [parameter.replace(annotation=hints[parameter.name]) for parameter in signature.parameters.values()]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in added.items()
    ]
    command.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
    command.__annotations__ = {**hints, **{name: kind for name, (kind, _) in added.items()}}
    return command


def _cache_off() -> AbstractContextManager[None]:
    from aneforge.cache import place  # brings NumPy and graphs, which commands without a model do not need

    return place.off()


class ListedCommands(TyperGroup):
    """Lists the commands with the whole of their first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                groups.setdefault(self._heading(command), []).append((name, command.get_short_help_str(limit=200)))
        for heading, rows in sorted(groups.items(), key=lambda group: _place(group[0])):
            with formatter.section(heading):
                formatter.write_dl(rows)

    def _heading(self, command: Any) -> str:
        return "Commands"


class GroupedCommands(ListedCommands):
    """Lists the commands by what somebody wants to do."""

    def _heading(self, command: Any) -> str:
        return str(getattr(command, "rich_help_panel", None) or "Commands")


def _place(heading: str) -> int:
    return _PANELS.index(heading) if heading in _PANELS else len(_PANELS)
