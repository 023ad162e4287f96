"""The commands that look something up: chips, their tables, operations, labels, and this installation."""

from __future__ import annotations

from typing import Annotated

import typer

from aneforge.chips.names import DEFAULT
from aneforge.cli.commands import LOOK_UP, Commands, CommandWithCodes
from aneforge.cli.options import (
    SPELLINGS,
    USUAL_ROUTE,
    AsJson,
    Chips,
    ModelFile,
    OneChip,
    complete_chips,
    route_option,
)

commands = Commands(LOOK_UP)


@commands.add()
def targets(
    chips: Annotated[
        str | None,
        typer.Argument(
            help=f"One chip: everything about it. Several ({SPELLINGS}): their rows.",
            show_default=False,
            autocompletion=complete_chips,
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Also list names that no compiler build constructs.")] = False,
    as_json: AsJson = False,
) -> None:
    """List every target with its chips and engines, or show everything that is known of one.

    A target is what Apple's compiler calls an engine (h13g); several chips share one. Every value has its evidence
    behind it: measured, decoded, predicted or inferred, with a source key that aneforge explain looks up.

    Examples:
      aneforge targets
      aneforge targets "M1 Max"
      aneforge targets m2 --json
    """
    from aneforge.cli import targets as command

    command.show(chips, every, as_json)


@commands.add()
def hal(
    chip: Annotated[
        str, typer.Argument(help="One chip (m1) or compiler target (h13g).", autocompletion=complete_chips)
    ],
    field: Annotated[
        str | None,
        typer.Argument(help="A byte offset (0x1b8) or the name of a field (default: all fields).", show_default=False),
    ] = None,
    compare: Annotated[
        str | None, typer.Option(help="Print the fields that differ from this chip.", autocompletion=complete_chips)
    ] = None,
    build: Annotated[
        str | None,
        typer.Option(help="Read offsets as this compiler build has them: 9.509 or 10.26.6 (default: the chip's own)."),
    ] = None,
    unknowns: Annotated[
        bool, typer.Option("--unknowns", help="Also show fields whose value is not published.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read the hardware-abstraction table of a chip: all of it, one field, or what differs from another chip.

    The table holds the limits and capabilities that Apple's compiler has for the chip. A field is named by its byte
    offset or its name.

    Examples:
      aneforge hal m1
      aneforge hal h13 0x1b8
      aneforge hal m1 texture_engine
      aneforge hal h13 --compare h17s
    """
    from aneforge.cli import hal as command

    command.show(chip, field, compare, build, unknowns, as_json)


@commands.add()
def ops(
    names: Annotated[
        list[str] | None, typer.Argument(help="Operations to show, as sin or topk (default: all).", show_default=False)
    ] = None,
    target: Chips = "m1..m6",
    route: Annotated[str | None, route_option(USUAL_ROUTE)] = None,
    differ: Annotated[
        bool, typer.Option("--differ", help="Only operations whose status differs between the chips.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show which operation is native, decomposed (done by other operations) or rejected on which chip.

    Examples:
      aneforge ops --target m1,m2,m5 --differ
      aneforge ops sin topk --target m1,m6
    """
    from aneforge.cli import ops as command

    command.show(names or [], target, route, differ, as_json)


@commands.add(judges=True, form=CommandWithCodes)
def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="A label (C03, U08, S35, T06, E01, op-route), a message, a code (-14, 0x20004), or - for a log on "
            "stdin.",
            show_default=False,
        ),
    ] = None,
    log: Annotated[str | None, typer.Option("--file", help="Read the log in this file; - is stdin.")] = None,
    model: Annotated[
        ModelFile,
        typer.Option("--model", help="Rank the causes of a message by how well this model fits.", parser=ModelFile),
    ] = None,  # type: ignore[assignment]  # a model that may be left out still takes the options of a model file
    target: OneChip = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Explain a label that reports show, or the messages and codes of a log: causes, sources and cures.

    A label is a conflict, a choice, a source, a fact, a rule, a pattern, a rewrite or a pass. In a log, known messages
    are found between time stamps, paths and other text, and listed with their causes, the most frequent first. With
    --model the causes that the model shows on --target come first, each with the node and a command that helps.

    Exit status: 0 something was found; 1 nothing in the text is known.

    Examples:
      aneforge explain U08
      aneforge explain op-route
      aneforge explain "ANECCompile() FAILED (11)"
      aneforge explain "error code: -14" --model model.onnx --target m2 --os 27
    """
    from aneforge.cli import explain as command

    raise typer.Exit(command.run(words or [], log, model, target, as_json))


@commands.add()
def probe(target: Chips = DEFAULT, as_json: AsJson = False) -> None:
    """Show public probes of the engine's arithmetic: what was read off real chips, and what the simulator gives.

    Examples:
      aneforge probe --target m1
      aneforge probe --target m1,m5 --json
    """
    from aneforge.cli import probe as command

    command.run(target, as_json)


@commands.add()
def doctor(as_json: AsJson = False) -> None:
    """Check this installation: versions, native kernel, optional packages, detected chip, settings and data.

    Exit status: 0 all is well; 1 something is degraded, and the last line names it.

    Examples:
      aneforge doctor
      aneforge doctor --json
    """
    from aneforge.cli import doctor as command

    raise typer.Exit(command.run(as_json))


@commands.add()
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove every stored model.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the imported models that are kept on this machine, their place and their size, or remove them.

    Examples:
      aneforge cache
      aneforge cache --clear
    """
    from aneforge.cli import cache as command

    command.run(clear, as_json)
