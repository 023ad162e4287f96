"""The page of reliability: what was tried, how often, and how to try it again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from campaign_counts import recorded

__all__ = ["reliability"]


def reliability() -> str:
    counts = recorded()
    return "\n".join([*_HEAD, *_fuzz(counts["fuzz"]), *_soak(counts["soak"]), *_TAIL])


_HEAD = [
    "# How reliable is it?",
    "",
    "Two campaigns look for what must never happen. Both are in the repository, and both print the counts below.",
    "`SECURITY.md` has the promises behind them.",
    "",
]


def _fuzz(counts: dict[str, Any]) -> Iterator[str]:
    kinds = counts["kinds"]
    files, commands = (sum(kind[key] for kind in kinds) for key in ("files", "commands"))
    yield from ("## Damaged files", "")
    yield f"`make fuzz` ({_command('fuzz', counts)}) damages files of every kind that a command reads,"
    yield "and runs the commands that read them. A command may answer, or refuse with one line and exit status 2."
    yield "A traceback, exit status 3, more than 30 seconds or 8 GiB are findings. *Answers* are the different ones,"
    yield "names and numbers aside: how far the damage got."
    yield from ("", f"**{commands:,} commands on {files:,} files: {_findings(counts['findings'])}.**", "")
    yield "| kind of file | files | commands | refused | answers |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for kind in kinds:
        numbers = " | ".join(f"{kind[key]:,}" for key in ("files", "commands", "refused", "answers"))
        yield f"| {kind['kind']} | {numbers} |"
    yield ""


def _soak(counts: dict[str, Any]) -> Iterator[str]:
    yield from ("## Random graphs", "")
    yield f"`make soak` ({_command('soak', counts)}) draws graphs over the whole vocabulary and asks"
    yield f"everything that answers about them, each on {counts['targets']} of the 28 targets in turn:"
    yield from ("", *_AGREE, "")
    yield f"**{counts['graphs']:,} graphs, {counts['exported']:,} of them exported: {_findings(counts['findings'])}.**"
    yield ""


_AGREE = (
    "- check, partition and compile agree on whether it runs;",
    "- where no risk is listed, the exact simulator is near the float64 reference;",
    "- native and plain kernels, the saved program and the program read back from its container give the same bits;",
    "- the fast mode is near the exact one, and the estimate is a time;",
    "- the Core ML package reads back as the same graph.",
)


def _command(tool: str, counts: dict[str, Any]) -> str:
    return f"`python tools/{tool}.py --seconds {counts['seconds']:g} --seed {counts['seed']}`"


def _findings(findings: int) -> str:
    return "no finding" if not findings else "1 finding" if findings == 1 else f"{findings:,} findings"


_TAIL = [
    "## Bytes",
    "",
    "The same version, model and target give the same bytes on every supported Python: programs, archives, pages,",
    "tables and answers as JSON. `make test-pythons` compares their digests on the oldest and the newest Python.",
    "",
    "## What was not tried",
    "",
    "Real chips, of which we have none, and Windows.",
]
