"""``aneforge kit`` and ``aneforge verify``: experiments on a chip that somebody has."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from aneforge.cli.commands import MEASURE, Commands, ListedCommands
from aneforge.cli.options import AModel, AsJson, chip_option, chips_option, out_option

_CHIPS = "m1..m6"
_About = Annotated[
    str,
    typer.Option("--about", help="Only these: unknowns (U50), conflicts (C69), kinds (words, times) or ids (X01)."),
]


class _KitGroup(ListedCommands):
    """``aneforge kit -o FOLDER`` is ``aneforge kit write -o FOLDER``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_option = bool(args) and args[0].startswith("-") and args[0] != "--help"
        return super().parse_args(ctx, ["write", *args] if is_option else args)


commands = Commands(
    MEASURE,
    "kit",
    purpose="Write experiments for a Mac or iPhone that settle what is unknown, and apply what their results show.",
    cls=_KitGroup,
)
on_a_mac = Commands(MEASURE)


@commands.add("write")
def kit_write(
    out: Annotated[str, out_option("Write the kit to this folder.")],
    target: Annotated[
        str, chips_option(words="Chips to print predictions for (the experiments are the same).")
    ] = _CHIPS,
    about: _About = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a folder of experiments that a person with a Mac runs: models, inputs, predictions and two runners.

    aneforge kit -o FOLDER does the same. The folder needs nothing but a Mac with its own Python or Swift. README.md in
    it says what is run, how long it takes and what is written; nothing is sent anywhere. Send the results.json that it
    gives to whom you like: aneforge contribute reads it.

    Examples:
      aneforge kit -o kit/
      aneforge kit write -o part/ --about U50,U40,times --target m4
    """
    from aneforge.cli import kit as command

    command.write(out, target, about, overwrite, as_json)


@commands.add("list")
def kit_list(
    target: Annotated[str | None, chip_option("Also print what every hypothesis predicts for this chip.")] = None,
    about: _About = "",
    as_json: AsJson = False,
) -> None:
    """List the experiments: what each asks, which unknowns it bears on, and how many answers rest on them.

    Examples:
      aneforge kit list
      aneforge kit list --about U50 --target m3
    """
    from aneforge.cli import kit as command

    command.show(target, about, as_json)


@commands.add("apply")
def kit_apply(
    file: Annotated[str, typer.Argument(help="The results.json of a kit.")],
    checkout: Annotated[str, typer.Option("--checkout", help="A checkout of aneforge's source.")] = ".",
    source: Annotated[str, typer.Option("--source", help="A name for where the rows come from.")] = "contributed",
    accept: Annotated[bool, typer.Option("--accept", help="Change the files, not only show the diff.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what results change in the data, as a diff, and which tests and pages follow; --accept changes it.

    Read the diff first. What the data cannot say by itself is listed for a person to do.

    Exit status: 0 nothing changes, or it was accepted; 1 something would change.

    Examples:
      aneforge kit apply results.json
      aneforge kit apply results.json --accept --source lab-7
    """
    from aneforge.cli import kit as command

    raise typer.Exit(command.apply(file, checkout, source, accept, as_json))


@on_a_mac.add("verify")
def verify(
    model: AModel,
    target: Annotated[str | None, chip_option("The chip of this Mac (default: as the system says).")] = None,
    inputs: Annotated[
        str | None, typer.Option("--input", help="Arrays by input name (.npz); without it they are drawn.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a model on this Mac's engine and show it beside what was predicted: placement, numbers and time.

    It exports the model, reads the compute plan, calls it through Core ML and names the first operation whose numbers
    differ. On another system it says what it would do, and how to write a kit for a Mac.

    Exit status: 0 all agree, or this is no Mac; 1 something differs.

    Examples:
      aneforge verify model.onnx
      aneforge verify net.py --input inputs.npz --json
    """
    from aneforge.cli import verify as command

    raise typer.Exit(command.run(model, target, inputs, as_json))
