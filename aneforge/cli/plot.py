"""``aneforge plot``: estimates of a model as a picture, an SVG file."""

from __future__ import annotations

from pathlib import Path

from aneforge import text
from aneforge.advice.estimates import estimate_all
from aneforge.chips.names import chip_label, chip_labels
from aneforge.cli import say
from aneforge.cli.notes import working
from aneforge.cli.options import ModelFile, require_file
from aneforge.errors import AneforgeError
from aneforge.files import write_whole
from aneforge.reports.picture import KINDS, picture_of
from aneforge.text import wrapped


def run(
    model: str | ModelFile, kind: str, chips: str | None, scope: str | None, out: str, as_json: bool = False
) -> None:
    """Write the picture, or print it where ``out`` is ``-``; chips without a program are noted on stderr."""
    source = ModelFile.of(model)
    if kind not in KINDS:
        raise AneforgeError(f"{kind}: not a kind of picture; choose one: {', '.join(KINDS)}.")
    file = None if out == "-" else writable(out)
    if file is None and as_json:
        raise AneforgeError("--json and --out -: both print on stdout. Give --out a file.")
    with working(f"estimating {source.name} on {chips or KINDS[kind]}"):
        estimates = estimate_all(source.path, chips or KINDS[kind], scope, **source.options)
        estimates.require()
    picture = picture_of(estimates, kind).svg
    for chip, error in estimates.refused.items():
        say.note(f"{chip_label(chip)}: {error}")
    split = [chip for chip, estimate in estimates.items() if estimate.parts]
    if split:
        say.note(wrapped(f"partly on the host with {chip_labels(split)}; aneforge estimate shows the parts"))
    if file is None:
        print(picture, end="")
        return
    write_whole(file, picture)
    if as_json:
        refused = {chip: str(error) for chip, error in estimates.refused.items()}
        print(text.as_json({"out": str(file), "kind": kind, "chips": list(estimates), "refused": refused}))
    else:
        print(f"wrote {file}")


def writable(out: str, option: str = "--out") -> Path:
    """The path of an SVG file that can be written; refused before anything is compiled."""
    file = Path(out)
    if file.suffix.casefold() != ".svg":
        raise AneforgeError(f"{out}: pictures are SVG; give a name that ends in .svg, or - to print it.")
    require_file(out, option)
    return file
