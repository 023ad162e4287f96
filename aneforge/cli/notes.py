"""What a command says on stderr besides its answer: notes, progress, and warnings of the library."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from aneforge.cli import say
from aneforge.progress import Line, LogLines, Progress
from aneforge.sim import native
from aneforge.study.partition import Partition


def slow_kernel(mode: str) -> None:
    """Why an exact simulation is slow here, if it is."""
    if mode == "exact" and native.why_not():
        say.note(f"{native.why_not()}; exact sums run in NumPy, the same bits and far slower")


def drawn(seed: int | None, samples: int) -> None:
    """Where the inputs came from, if nobody gave them."""
    if seed is not None:
        what = "inputs were" if samples == 1 else f"inputs of {samples} samples were"
        say.note(f"{what} drawn with seed {seed}; --input FILE.npz gives your own")


def regions(split: Partition) -> None:
    """Which part of the model was not on the engine."""
    say.note(f"{split.summary()} in float32 (aneforge partition lists them)")


# Progress of a command on stderr: a line on a terminal, lines in words with ``-v``, else nothing.


@contextmanager
def working(what: str) -> Iterator[Progress | None]:
    """Say after a second what is being done, and how far it is where the work tells; erased when the block ends.

    Print results after the block. What the library works out only when it is printed belongs inside.
    """
    voice = say.voice()
    if voice.verbose:
        yield LogLines(say.detail)
    elif voice.quiet or not sys.stderr.isatty():
        yield None
    else:
        with Line(what) as line, say.around(line.lifted):
            yield line


# Warnings of the library as plain lines, without the file and line of this package in front.


@contextmanager
def warnings_on_stderr(*ignored: type[Warning]) -> Iterator[None]:
    """Print what is warned of inside on stderr, each text once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for category in ignored:
            warnings.simplefilter("ignore", category)
        yield
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        say.line(f"warning: {text}")
