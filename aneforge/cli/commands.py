"""How a command is declared, and what its ``--help`` looks like."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import wraps
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand, TyperGroup

from aneforge.chips.names import chip_list
from aneforge.cli import say
from aneforge.cli.options import Dims, Function, ModelFile

# What ``--help`` of a command looks like: what to write first, examples, options by what they belong to.


_EXAMPLES = "Examples:"
_TAKES = {
    "apply": "FOLDER",
    "base": "COMMIT",
    "baseline": "FILE",
    "budget": "COUNT",
    "about": "WHAT",
    "checkout": "FOLDER",
    "earlier": "FILE",
    "profile": "FILE",
    "build": "BUILD",
    "by": "WAY",
    "calibration": "FILE.npz",
    "changes": "COUNT",
    "color": "WHEN",
    "data": "FILE.npz",
    "decode": "STEPS",
    "compare": "OTHER",
    "compare_target": "CHIPS",
    "dim": "NAME=SIZE",
    "encodings": "NAMES",
    "every": "STEPS",
    "explain": "NODE",
    "fail_above": "STEPS",
    "fail_on": "OUTCOMES",
    "form": "NAME",
    "format_name": "FORMAT",
    "function": "NAME",
    "host": "ADDRESS",
    "inputs": "FILE.npz",
    "junit": "FILE",
    "context": "TOKENS",
    "copy_gbs": "RATE",
    "loss": "KIND",
    "loss_scale": "FACTOR",
    "log": "FILE",
    "lr": "RATE",
    "machine": "NAME",
    "max_abs": "NUMBER",
    "max_answer": "COUNT",
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
    "runtime": "NAME",
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
    "system": "VERSION",
    "target": "CHIPS",
    "target_error": "ERROR",
    "task": "NUMBER",
    "tolerance": "PERCENT",
    "weights": "FORM",
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

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [_current(word) for word in args])

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


_NEGATIVE = re.compile(r"-\d{1,10}")


class CommandWithCodes(HelpfulCommand):
    """Takes a code such as ``-14`` as a word and not as an option. Its sign becomes the one of typographers, which
    readers of logs take for the same."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(
            ctx, [f"\N{MINUS SIGN}{word[1:]}" if _NEGATIVE.fullmatch(word) else word for word in args]
        )


def _argument(parameter: Any) -> str:
    return f"{parameter.metavar}{'' if parameter.nargs == 1 else '...'}"


def _section(name: str) -> str:
    if name in _OF_THE_FILE:
        return "Options of the model file"
    return "Options of every command" if name in _OF_EVERY_COMMAND else "Options"


def _current(word: str) -> str:
    """An option by the name that it has now."""
    name, given, value = word.partition("=")
    return f"{_FORMER.get(name, name)}{given}{value}"


FRONT = ("report", "check", "estimate", "compare", "risks", "compress", "ci", "serve")
"""The commands that answer about a model, in the order of the help; all others are below them."""
START = "Start here"
LOOK_UP, CHECK, COMPILE = "More to look up", "More to check", "More to compile"
RUN, MEASURE, DEPLOY = "More to run", "More to measure", "More to deploy"
_PANELS = (START, LOOK_UP, CHECK, COMPILE, RUN, MEASURE, DEPLOY)
_FORMER = {"--against": "--compare", "--against-target": "--compare-target", "--diff": "--compare"}
"""Options by the names that scripts know them under."""
_FORMER_VERBS = {"diverges": ["compare", "--any-input"]}

_CHIPS = ("target", "compare_target")
"""Parameters that name chips."""
_Added = dict[str, tuple[Any, Any]]  # the annotation and the default of each option, by its parameter
_NoCache = Annotated[bool, typer.Option("--no-cache", help="Import the model file again, and store nothing.")]
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only, no notes.")]
_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print on stderr what is being done.")]
_Color = Annotated[str, typer.Option("--color", help="Use colours: auto, always or never.")]
_OF_A_FILE: _Added = {"dim": (Dims, None), "function": (Function, None)}
_VOICE: _Added = {"quiet": (_Quiet, False), "verbose": (_Verbose, False), "color": (_Color, "auto")}

_System = Annotated[
    str | None,
    typer.Option("--os", help="The system: 26.5, 27.2, 'iOS 18' and so on (default: the newest known, ANEFORGE_OS)."),
]
_Runtime = Annotated[
    str | None,
    typer.Option(
        "--runtime",
        help="Who runs the model: coreml, coreai, direct, or ort-coreml and ort-coreml-mlprogram for the two forms of "
        "ONNX Runtime's Core ML provider (default: who reads the file, ANEFORGE_RUNTIME; else all that the engine can "
        "take).",
    ),
]
_AXES: _Added = {"system": (_System, None), "runtime": (_Runtime, None)}
"""What a verdict depends on beside the model and the chip."""

Declared = Callable[..., None]


class Commands:
    """Commands that the help lists under one heading: verbs of ``aneforge`` itself, or of a verb such as ``ci``."""

    def __init__(self, panel: str, name: str | None = None, purpose: str | None = None, **settings: Any) -> None:
        self.panel, self.name = panel, name
        settings = {"cls": ListedCommands, "no_args_is_help": True, "rich_markup_mode": None, **settings}
        self.typer = typer.Typer(name=name, help=purpose, **settings)

    def add(
        self, name: str | None = None, judges: bool = False, form: type[HelpfulCommand] | None = None
    ) -> Callable[[Declared], Declared]:
        """Declare a command; its name is the function's unless another is given. One that ``judges`` a model takes the
        system and the runtime that the answer is about. ``form`` is another class of command."""

        def register(function: Declared) -> Declared:
            command = self.typer.command(name, cls=form or HelpfulCommand, rich_help_panel=self.panel)
            command(_with_common_options(function, judges))
            return function

        return register

    def add_to(self, app: typer.Typer) -> None:
        """Put them into the program; those without a name of their own become verbs of the program."""
        if self.name is None:
            app.registered_commands.extend(self.typer.registered_commands)
        else:
            app.add_typer(self.typer, name=self.name, rich_help_panel=self.panel)


def _with_common_options(function: Declared, judges: bool) -> Declared:
    """The command with the options that all have after its own, those of a model file if it takes one, and those that
    a verdict depends on."""
    # typing.get_type_hints of Python 3.10 wraps annotations in Optional where the default is None: options get lost.
    hints = inspect.get_annotations(function, eval_str=True)
    model = next((name for name, hint in hints.items() if ModelFile in get_args(hint)[:1]), None)
    added = {
        **(_AXES if judges else {}),
        **(_OF_A_FILE if model else {}),
        **({"no_cache": (_NoCache, False)} if model else {}),
        **_VOICE,
    }

    @wraps(function)
    def command(*values: Any, **named: Any) -> None:
        say.set_voice(**{name: named.pop(name) for name in _VOICE})
        if function.__name__ != "compare":  # which takes float64 beside the chips
            _check_chips(named)
        if model is not None:
            of_file = {"dims": named.pop("dim") or (), "function": named.pop("function")}
            named[model] = named[model] and replace(named[model], **of_file)  # an optional model may be left out
        axes = _asked_axes(named.pop("system"), named.pop("runtime")) if judges else nullcontext()
        with axes, _cache_off() if named.pop("no_cache", False) else nullcontext():
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


def _asked_axes(os: str | None, runtime: str | None) -> AbstractContextManager[None]:
    """The system and the runtime as settings while the command runs, in this process and in its workers."""
    if os is None and runtime is None:
        return nullcontext()
    from aneforge.chips import systems
    from aneforge.process import settings
    from aneforge.study import placement

    asked = {systems.SETTING: None if os is None else systems.system(os)}
    if runtime is not None:
        asked[placement.SETTING] = placement.runtime_called(runtime).name
    return settings(asked)


def _check_chips(named: Mapping[str, Any]) -> None:
    """Refuse an unknown chip at once: a large model can take a minute to load."""
    for name in _CHIPS:
        if isinstance(asked := named.get(name), str):
            chip_list(asked, f"--{name.replace('_', '-')}", typed=True)


def _cache_off() -> AbstractContextManager[None]:
    from aneforge.formats.cache import (
        entry,  # brings NumPy and graphs, which commands without a model do not need
    )

    return entry.off()


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
    """Lists the commands in front first, and the others by what somebody wants to do."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        former = _FORMER_VERBS.get(args[0]) if args else None
        return super().parse_args(ctx, args if former is None else [*former, *args[1:]])

    def list_commands(self, ctx: Any) -> list[str]:
        names = super().list_commands(ctx)
        return [*(name for name in FRONT if name in names), *(name for name in names if name not in FRONT)]

    def _heading(self, command: Any) -> str:
        return panel_of(command)


def panel_of(command: Any) -> str:
    """The heading under which the help lists a command of the program."""
    return START if command.name in FRONT else str(getattr(command, "rich_help_panel", None) or "Commands")


def _place(heading: str) -> int:
    return _PANELS.index(heading) if heading in _PANELS else len(_PANELS)


# A group of commands of which one is meant where none is named: ``aneforge sweep MODEL`` is ``sweep run MODEL``.


DEFAULT = "run"


class GroupWithDefault(ListedCommands):
    """Takes what is not one of its commands for arguments of ``run``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args[:1] == ["diff"] and "compare" in self.commands:  # as scripts know it
            args = ["compare", *args[1:]]
        if args and args[0] not in self.commands and args[0] not in ("--help",):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)
