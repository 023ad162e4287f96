"""The commands that hand a model or its report on."""

from __future__ import annotations

from typing import Annotated

import typer

from aneforge.chips.names import DEFAULT
from aneforge.cli.commands import DEPLOY, Commands
from aneforge.cli.options import AModel, AsJson, Chips, MaxMemory, MaxSeconds, chip_option, out_option

commands = Commands(DEPLOY)


@commands.add(judges=True)
def lifecycle(model: AModel, target: Chips = DEFAULT, as_json: AsJson = False) -> None:
    """Show what users wait for besides calls: first load, load after a system update, later loads, the call after a
    pause, memory and disk, and what shortens it.

    Bands are the range of what was measured on programs of about the same size through the same runtime (--runtime,
    default coreml). An end that nobody knows is open, and what nobody measured is unknown.

    Examples:
      aneforge lifecycle model.onnx --target m2,m4
      aneforge lifecycle model.onnx --target m5 --runtime coreai
    """
    from aneforge.cli import lifecycle as command

    command.run(model, target, as_json)


@commands.add()
def export(
    model: AModel,
    out: Annotated[str, out_option("Write a Core ML package (NAME.mlpackage) or a netplist (NAME.plist).")],
    target: Annotated[
        str | None, chip_option("Rewrite the ops that this chip lacks (default: those that no chip has).")
    ] = None,
    region: Annotated[
        int | None, typer.Option(help="Export only this region of the model, as aneforge partition numbers them.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what exists.")] = False,
    binary: Annotated[bool, typer.Option("--binary", help="Write the netplist as a binary property list.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a model as a Core ML package, with weights in the form they are stored in, or as a netplist.

    Both contain the rewrites of the target. A netplist states native layers; its kernels and constants go to
    NAME.weights.bin. Nothing is run on a device.

    Examples:
      aneforge export model.onnx --out model.mlpackage --target m1
      aneforge export net.py --out net.plist --target m1 --overwrite
    """
    from aneforge.cli import export as command

    command.run(model, out, target, region, overwrite, as_json, binary)


@commands.add()
def mcp(
    folder: Annotated[str, typer.Argument(help="Read and write files below this folder only.")],
    max_answer: Annotated[int, typer.Option("--max-answer", help="Answer with at most this many characters.")] = 40000,
    max_seconds: MaxSeconds = 600.0,
    allow_python: Annotated[
        bool, typer.Option("--allow-python", help="Take FILE.py:NAME too, which runs the file.")
    ] = False,
) -> None:
    """Run a server of the Model Context Protocol on stdin and stdout: the eight commands in front as tools for agents.

    Answers are the documents that --json prints; lists that make one too long are cut, and left_out says how much.

    Examples:
      aneforge mcp .
      aneforge mcp models --max-answer 20000
    """
    from aneforge.cli import mcp as command

    command.run(folder, max_answer, max_seconds, allow_python)


@commands.add()
def serve(
    host: Annotated[str, typer.Option("--host", help="Listen on this address of this machine.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Listen on this port; 0 takes a free one.")] = 8017,
    target: Chips = DEFAULT,
    max_upload: Annotated[str, typer.Option("--max-upload", help="Take files up to this size, such as 2G.")] = "2G",
    max_seconds: MaxSeconds = 600.0,
    max_memory: MaxMemory = "8G",
    as_json: AsJson = False,
) -> None:
    """Run a local page where a model file is dropped and its report appears.

    Only this machine can reach it. Each model is read in a process of its own and removed afterwards. Ctrl-C ends it.
    --json prints the address as JSON.

    Examples:
      aneforge serve
      aneforge serve --port 0 --target macs
    """
    from aneforge.cli import serve as command
    from aneforge.cli.sweep import limits_of

    command.run(host, port, target, limits_of(max_seconds, max_memory), max_upload, as_json)
