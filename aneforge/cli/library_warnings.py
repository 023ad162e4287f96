"""Warnings of the library as plain lines, without the file and line of this package in front."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from aneforge.cli import say


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
