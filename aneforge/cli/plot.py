"""``aneforge plot``: estimates of a model as a picture, an SVG file."""

from __future__ import annotations

from pathlib import Path

from aneforge.cli import say
from aneforge.cli.estimate import estimated
from aneforge.cli.model_file import ModelFile
from aneforge.errors import AneforgeError
from aneforge.output import text
from aneforge.output.files import write_whole
from aneforge.report.plots import chips_svg, roofline_svg, timeline_svg

# The chips of each picture where none are named.
KINDS = {"roofline": "m1", "timeline": "m1", "chips": "macs,phones"}


def run(model: str | ModelFile, kind: str, chips: str | None, scope: str, out: str, as_json: bool = False) -> None:
    """Write the picture, or print it where ``out`` is ``-``; chips without a program are told on stderr."""
    if kind not in KINDS:
        raise AneforgeError(f"no picture {kind!r}; it is {', '.join(KINDS)}")
    file = None if out == "-" else writable(out)
    if file is None and as_json:
        raise AneforgeError("--json and --out - both print on stdout; give --out a file")
    found = estimated(model, chips or KINDS[kind], scope)
    found.require()
    source = Path(str(model)).name
    if kind == "chips":
        made = chips_svg(found.in_order(), f"{source}: estimated time of one call")
    elif kind == "timeline":
        made = timeline_svg(found.estimates, f"{source}: estimated time by layer")
    else:
        made = roofline_svg(found.estimates, f"{source}: layers and roofline")
    for label, why in found.refused.items():
        say.note(f"{label}: no program: {why}")
    if file is None:
        print(made, end="")
        return
    write_whole(file, made)
    if as_json:
        refused = {label: str(why) for label, why in found.refused.items()}
        print(text.as_json({"out": str(file), "kind": kind, "chips": list(found.estimates), "refused": refused}))
    else:
        print(f"wrote {file}")


def writable(out: str) -> Path:
    """Refused before anything is compiled: what is no SVG file, and what has no folder."""
    file = Path(out)
    if file.suffix.casefold() != ".svg":
        raise AneforgeError(f"{out}: pictures are SVG; give a name that ends in .svg, or - to print it")
    if not file.parent.is_dir():
        raise AneforgeError(f"{out}: there is no folder {file.parent}; make it first, or choose another")
    if file.is_dir():
        raise AneforgeError(f"{out}: this is a folder; give the name of a file in it")
    return file
