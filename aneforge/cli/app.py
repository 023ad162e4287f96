"""The program ``aneforge``: its verbs, put together from the groups of the help."""

from __future__ import annotations

from typing import Annotated

import typer

from aneforge.cli.commands import GroupedCommands
from aneforge.cli.verbs import check, ci, deploy, evaluate, kit, look_up, measure, measured, run, sweep
from aneforge.cli.verbs import compile as compile_
from aneforge.version import __version__

app = typer.Typer(
    name="aneforge",
    cls=GroupedCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _group in (look_up, check, compile_, run, evaluate, measure, measured, deploy, ci, sweep):
    _group.commands.add_to(app)
kit.commands.add_to(app)
kit.on_a_mac.add_to(app)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"aneforge {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Compiler, simulator and cost model for the Apple Neural Engine, on any machine.

    Name chips as you would say them: M1, "M2 Pro", a17-pro, T8103, or by compiler target (h13g). Name several as
    m1,m5 or m1..m6 or macs, phones, all. Every command takes -q, -v, --color and, where it has results, --json.

    Exit status: 0 fine; 1 a check found something; 2 the command or its input is wrong; 3 a bug in aneforge.
    """
