"""``aneforge evaluate``: a model on a whole data set."""

from __future__ import annotations

from typing import Annotated

import typer

from aneforge.chips.names import DEFAULT
from aneforge.cli.commands import RUN, Commands, GroupWithDefault
from aneforge.cli.options import AModel, AsJson, Chips, Mode, out_option

commands = Commands(
    RUN,
    "evaluate",
    purpose="Measure the accuracy of a model on a data set, on each chip: aneforge evaluate MODEL --data FILE.",
    cls=GroupWithDefault,
)


@commands.add("run")
def evaluate_run(
    model: AModel,
    data: Annotated[
        str,
        typer.Option(
            "--data",
            help="The samples: FILE.npz (arrays named as the inputs, and labels), a folder of images or arrays, a "
            "manifest with path and label (.csv, .json, .jsonl), or FILE.parquet.",
            metavar="DATA",
        ),
    ],
    target: Chips = DEFAULT,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            help="Metrics, separated by commas: top1, top5, cosine, psnr, miou or own.py:function (default: top1 "
            "where there are labels, else cosine).",
            metavar="NAMES",
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            help="The float model to compare with: onnx (onnxruntime), float32 or none (default: onnx for such a file "
            "where onnxruntime is installed, else float32).",
            metavar="NAME",
        ),
    ] = None,
    samples: Annotated[int | None, typer.Option("--samples", help="Evaluate the first COUNT samples.")] = None,
    labels: Annotated[
        str | None, typer.Option("--labels", help="The array or column of the labels.", metavar="NAME")
    ] = None,
    preprocess: Annotated[
        str | None,
        typer.Option(
            "--preprocess",
            help="Make the inputs with this function: of an image [rows, columns, channels], or of arrays by name.",
            metavar="FILE.py:NAME",
        ),
    ] = None,
    compress: Annotated[
        str | None,
        typer.Option(
            "--compress", help="Also run with the weights stored like this, such as int8,int4.", metavar="FORMS"
        ),
    ] = None,
    calibration: Annotated[
        str | None,
        typer.Option(
            "--calibration",
            help="Data that the weights were fitted to: none of its samples may be evaluated.",
            metavar="DATA",
        ),
    ] = None,
    out: Annotated[
        str | None,
        out_option("Keep the scores of each sample in this folder; what is there is not done again.", "FOLDER"),
    ] = None,
    shard: Annotated[str | None, typer.Option(help="Do only part i of n, written i/n; merge joins the parts.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="End with an error at the first sample that cannot be read or scored.")
    ] = False,
    device: Annotated[
        str, typer.Option("--device", help="Simulate on the cpu, or on a GPU (cuda): same bits.", metavar="NAME")
    ] = "cpu",
    mode: Mode = "exact",
    as_json: AsJson = False,
) -> None:
    """Run a model on a data set and print its accuracy on each chip, with intervals and paired tests.

    The worst samples follow, the classes that change, and the first layer behind the difference. A sample that cannot
    be used is counted and named. Stop it at any time: with --out the same command goes on.

    Exit status: 0 every sample has a score; 1 one has not.

    Examples:
      aneforge evaluate net.py --data samples.npz --target m1,m5
      aneforge evaluate net.py --data samples.npz --compress int8,int4 --metric cosine,psnr --out results
      aneforge evaluate net.py --data samples.npz --shard 2/8 --out part-2
    """
    from aneforge.cli import evaluate as command

    asked = (data, target, metric, reference, mode, samples, labels, preprocess, compress, calibration)
    raise typer.Exit(command.run(model, command.EvaluateOptions(*asked, out, shard, strict, device, as_json)))


@commands.add("merge")
def evaluate_merge(
    folders: Annotated[list[str], typer.Argument(help="Folders of one evaluation, or of its shards.")],
    out: Annotated[str | None, out_option("Write the figures as JSON to this file.", "FILE.json")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the figures of an evaluation whose shards were done apart: those of a run of the whole.

    Exit status: 0 every sample has a score; 1 one has not.

    Examples:
      aneforge evaluate merge part-1 part-2
      aneforge evaluate merge part-1 part-2 --json
    """
    from aneforge.cli import evaluate as command

    raise typer.Exit(command.merge(folders, out, as_json))
