"""The command line. Commands print what the library answers; they compute nothing of their own.

Exit status: 0 done, 1 a check found something, 2 the input or the command cannot be used, 3 a fault of aneforge,
130 interrupted, 141 the reader of the output has gone.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from contextlib import suppress
from typing import Any

from aneforge.errors import (
    TRACEBACK,
    AneforgeError,
    ArgumentError,
    error_document,
    is_input_error,
    line_of,
    shown,
)

__all__ = ["main"]

_BAD_INPUT, _FAULT, _INTERRUPTED, _NO_READER = 2, 3, 130, 141
_OPTIONS = {"dims": "--dim", "inputs": "--input", "model": "model"}
"""Options that are not called as the parameter that they give."""


def _show_warning(message: Warning | str, *where: object, **more: object) -> None:
    """A warning as users of commands want it: what, and not which line of this package."""
    from aneforge.cli import say

    say.line(f"aneforge: warning: {shown(str(message))}")


def main() -> None:
    """Entry point: every failure is one line on stderr and an exit status that says whose it is."""
    warnings.showwarning = _show_warning
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")  # a name that the terminal cannot encode must not fail
    sys.exit(_status())


def _status() -> int:
    stdout = sys.stdout
    try:
        from aneforge.cli.app import app

        status = app(prog_name="aneforge", standalone_mode=False)
        stdout.flush()
    except SystemExit as error:
        if sys.stdout is not stdout:  # typer puts another stream in its place when the reader has gone
            return _no_reader()
        return error.code if isinstance(error.code, int) else _BAD_INPUT if error.code else 0
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        return _no_reader()
    except BaseException as error:
        return _failed(error)
    return status if isinstance(status, int) else 0


def _failed(error: BaseException) -> int:
    """One line, and whose failure it is."""
    show = getattr(error, "show", None)  # typer's own errors: a command or an option that is not there
    if show is not None and not isinstance(error, AneforgeError):
        return _misused(error)
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    if isinstance(error, ArgumentError):
        return _say(f"{_OPTIONS.get(error.parameter, _option(error.parameter))}: {error.problem}", _BAD_INPUT)
    if type(error).__name__ == "Abort":
        return _INTERRUPTED
    return _say(line_of(error), _BAD_INPUT if is_input_error(error) else _FAULT)


def _misused(error: Any) -> int:
    """What typer says of a command line, in one line with where to look; the help itself where nothing was asked."""
    ctx, message = getattr(error, "ctx", None), " ".join(error.format_message().split())
    if ctx is None or type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return _BAD_INPUT
    ended = message if message.endswith(("?", ".")) else f"{message}."
    return _say(f"{ended} Run {ctx.command_path} --help to see what it takes.", _BAD_INPUT, ctx.command_path)


def _option(parameter: str) -> str:
    return f"--{parameter.replace('_', '-')}"


def _say(message: str, status: int, where: str | None = None) -> int:
    """A line on stderr; with --json the same as one document on stdout, which is all that there is on it."""
    print(f"aneforge: {shown(message)}", file=sys.stderr)
    if "--json" in sys.argv[1:]:
        import json

        print(json.dumps(error_document(shown(message), status, where), indent=2, ensure_ascii=False))
    return status


def _no_reader() -> int:
    """Quiet, also when Python flushes at its end."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return _NO_READER
