"""Progress of a command on stderr: a line on a terminal, lines in words with ``-v``, else nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from aneforge.cli import say
from aneforge.output.progress import Line, LogLines, Progress


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
