"""The commands that run a model in the simulator: once, on several chips, in training."""

from __future__ import annotations

from typing import Annotated

import typer

from aneforge.chips.names import DEFAULT
from aneforge.cli.commands import RUN, Commands
from aneforge.cli.options import (
    AModel,
    AsJson,
    Chips,
    Everything,
    Input,
    Loss,
    LossScale,
    MaxAbs,
    Mode,
    OneChip,
    Seed,
    chips_option,
    complete_chips,
    out_option,
)
from aneforge.errors import AneforgeError

commands = Commands(RUN)


@commands.add("run")
def run_(
    model: AModel,
    target: Annotated[
        str | None,
        chips_option("One chip (default: the first of the default chips), or several to compare"),
    ] = None,
    inputs: Input = None,
    seed: Seed = None,
    out: Annotated[str | None, out_option("Write the outputs of one chip by name, FILE.npz.")] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Show every op of every layer with its values and fidelity.")
    ] = False,
    batch: Annotated[
        bool, typer.Option("--batch", help="Run each sample of --input, whose arrays have one more axis.")
    ] = False,
    call: Annotated[
        str | None,
        typer.Option("--call", metavar="KIND", help="Of a folder of programs: decode or prompt (default: decode)."),
    ] = None,
    mode: Mode = "exact",
    as_json: AsJson = False,
) -> None:
    """Simulate a model on one chip or several and print the outputs; for several, also where their numbers differ.

    With several chips this is aneforge compare with the outputs of each chip in front. A compiled program (.hwx,
    .anef) runs on the chip that it is for, and so does a folder of programs that aneforge split --apply wrote.

    Examples:
      aneforge run net.py --target m1
      aneforge run net.py --target m5 --input x.npz --out y.npz
      aneforge run net.py --target m1,m2,m5,m6
    """
    from aneforge.cli import run as command

    options = command.RunOptions(inputs, out, trace, batch, mode, as_json, seed, call)
    command.run(model, target, options)


@commands.add()
def compare(
    model: AModel,
    target: Annotated[str, chips_option("Two chips or more; float64 among them adds the error of each")] = DEFAULT,
    reference: Annotated[
        str | None,
        typer.Option(help="Compare the others with this chip (default: the first).", autocompletion=complete_chips),
    ] = None,
    inputs: Input = None,
    seed: Seed = None,
    samples: Annotated[
        int | None,
        typer.Option(
            help="Draw this many samples, or read at most as many (default: 2 where inputs promise a range, else 1)."
        ),
    ] = None,
    picture: Annotated[
        str | None, typer.Option("--plot", help="Draw a heat map, NAME.svg (an existing file is replaced).")
    ] = None,
    fail_above: Annotated[
        float | None, typer.Option(help="Exit with 1 if an output differs by more steps of fp16 than this.")
    ] = None,
    decode: Annotated[
        int | None, typer.Option(help="Decode this many steps with caches that grow, and show the first that differs.")
    ] = None,
    any_input: Annotated[
        bool,
        typer.Option("--any-input", help="Run nothing: list each layer that can differ for any input, and why."),
    ] = False,
    max_abs: MaxAbs = None,
    everything: Everything = False,
    mode: Mode = "exact",
    as_json: AsJson = False,
) -> None:
    """Simulate a model on several chips and show, node by node, where their numbers differ and how far.

    The same as aneforge run with several chips, without the outputs, and with a reference, a limit and a picture.
    Drawn inputs fill the ranges that the model promises (max_abs, bytes), and one sample lies at their ends.

    With --any-input nothing is simulated: a layer that is not listed has the same bits for every input in its range.
    Ranges are those of --max-abs, or what a run on --input shows.

    With --decode, a model with caches runs step by step on each chip: masks hide the places that are not in use, and
    the report has the first step with other bits and the first with another token.

    Exit status: 0 no output differs by more than --fail-above; 1 one does.

    Examples:
      aneforge compare net.py --target m1,m2,m5
      aneforge compare net.py --target m1,m5 --samples 8 --plot heat.svg
      aneforge compare net.py --target m1,m5 --fail-above 64
      aneforge compare net.py --target m1,m5 --any-input --max-abs 4
      aneforge compare decoder.py --target m1,m5,float64 --decode 32
    """
    from aneforge.cli import compare as command

    options = command.CompareOptions(inputs, samples, reference, picture, fail_above, mode, as_json, seed, decode)
    bounds = command.Bounds(max_abs, everything) if any_input or max_abs is not None or everything else None
    if bounds is not None and not any_input:
        raise AneforgeError("--max-abs and --all: they are for --any-input. Add it, or leave them out.")
    raise typer.Exit(command.run(model, target, options, bounds))


@commands.add()
def train(
    model: AModel,
    data: Annotated[
        str, typer.Option(help="Read the samples by input name from FILE.npz, all of them along the first axis.")
    ],
    target: OneChip = DEFAULT,
    steps: Annotated[int, typer.Option(help="Train until this many steps are done in all.")] = 300,
    loss: Loss = "output",
    lr: Annotated[float, typer.Option(help="The learning rate.")] = 0.01,
    loss_scale: LossScale = 1.0,
    optimizer: Annotated[str, typer.Option(help="The optimiser: sgd or adam.")] = "sgd",
    device: Annotated[
        bool, typer.Option("--device", help="Put the optimiser into the program, so that it computes in fp16.")
    ] = False,
    overflow: Annotated[
        str,
        typer.Option(
            help="At a gradient that is not finite: skip the step, halve the loss scale too, or end with an error."
        ),
    ] = "skip",
    out: Annotated[str | None, out_option("Write a checkpoint here, also after Ctrl-C.")] = None,
    every: Annotated[int, typer.Option(help="Also write the checkpoint every so many steps; 0 only at the end.")] = 0,
    resume: Annotated[str | None, typer.Option(help="Continue from this checkpoint.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Draw the batches from this seed (default: 0).")] = None,
    mode: Mode = "exact",
    as_json: AsJson = False,
) -> None:
    """Train the parameters of a graph under a chip's arithmetic, step by step in the simulator.

    The model is a graph with parameters (af.parameter, af.conv_param), whose first axis is the batch. Ctrl-C writes
    the checkpoint of the last whole step, and --resume continues from it with the same bits.

    Examples:
      aneforge train net.py:loss --data batch.npz --target m1 --steps 20
      aneforge train net.py:logits --loss cross-entropy --data digits.npz --loss-scale 1024 --out run.ckpt
    """
    from aneforge.cli import train as command

    rates = (loss, lr, loss_scale, optimizer, device, overflow)
    settings = command.TrainOptions(data, steps, *rates, out, every, resume, seed, mode, as_json)
    command.run(model, target, settings)


@commands.add("gradcheck")
def gradcheck_(
    model: AModel,
    target: Chips = DEFAULT,
    inputs: Input = None,
    loss: Loss = "output",
    loss_scale: LossScale = 1.0,
    samples: Annotated[int, typer.Option(help="Move this many numbers of each parameter.")] = 8,
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    """Compare gradients under a chip's arithmetic with float64 differences, and advise a loss scale.

    Names the first op that loses a gradient.

    Exit status: 0 no chip loses a gradient; 1 one does.

    Examples:
      aneforge gradcheck net.py:loss --target m1,m5
      aneforge gradcheck net.py:logits --loss cross-entropy --input labelled.npz --loss-scale 1024
    """
    from aneforge.cli import train as command

    if not command.check(model, target, inputs, loss, loss_scale, samples, seed, as_json):
        raise typer.Exit(1)
