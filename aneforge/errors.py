"""Every error this package raises on purpose: one clear line, exit status 2 on the command line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

DISTRIBUTION = "aneforge-compiler"
"""The name of this package in the package index. The import name and the command are ``aneforge``."""
FOREIGN = "aneforge"
"""The name of another project's package, which is imported under the same name."""
TRACEBACK = "ANEFORGE_TRACEBACK"
"""The environment variable that adds the Python traceback of an error to its line."""


def shown(text: str) -> str:
    """Text from a stranger's file, fit for a terminal or a log: one line, and nothing in it is obeyed.

    Control characters, escape codes, line ends, bidirectional marks and whatever else has no glyph are written as
    escapes (``\\n``, ``\\x1b``, ``\\u202e``), so that a name can neither start a line of its own nor colour one.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


_NAME, _MESSAGE = 120, 4000  # letters of a name, and of a message, that people still read


def shortened(text: str, most: int = _NAME) -> str:
    """Text of a file in at most so many letters: what is longer keeps its beginning and its end."""
    if len(text) <= most:
        return text
    end = most // 4
    return f"{text[: most - end - 3]}...{text[-end:]}"


class AneforgeError(Exception):
    """Base class: the message is complete, one line, and fit to show to a user as it is (:func:`shown`)."""

    def __str__(self) -> str:
        return shown(shortened(super().__str__(), _MESSAGE))


class ArgumentError(AneforgeError, ValueError):
    """A parameter that a function cannot use; the message says why and what to give instead.

    The command line shows the parameter as the option of the same meaning (``fail_on`` as ``--fail-on``).
    """

    def __init__(self, parameter: str, problem: str) -> None:
        super().__init__(f"{parameter}: {problem}")
        self.parameter = parameter
        self.problem = problem


class UnknownNameError(AneforgeError, KeyError):
    """A chip, operation, field, offset or limit that does not exist; the message lists near names."""

    def __str__(self) -> str:  # KeyError would show the message in quotes
        return shown(shortened(str(self.args[0]), _MESSAGE)) if self.args else ""


class FamilyError(AneforgeError, ValueError):
    """A family number or name outside the enumeration it was used with."""


class UnknownValueError(AneforgeError, LookupError):
    """The thing exists, but nobody has published the value that was asked for."""


class DataError(AneforgeError):
    """A data file of the package is missing, damaged or edited by hand."""


class GraphError(AneforgeError, ValueError):
    """A graph that is wrong on every chip; names the op, the user's line, the shapes and the rule."""


class EinsumUnsupported(GraphError, NotImplementedError):  # noqa: N818 - the name that existing code catches
    """An equation that is right, but that no product and sum of the engine computes."""


class LoadError(AneforgeError):
    """A model that cannot become a graph: which file, which node, and what to do."""


class UnavailableError(AneforgeError):
    """Part of the public surface that this version does not have yet."""


def foreign_package(folder: str) -> str:
    """One line where the other package is installed into the same folder, so that files of both are mixed; else
    nothing."""
    try:
        names = os.listdir(folder)
    except OSError:
        return ""
    record = next((name for name in names if name.startswith(f"{FOREIGN}-") and name.endswith(".dist-info")), None)
    if record is None:
        return ""
    version = record.removeprefix(f"{FOREIGN}-").removesuffix(".dist-info")
    return (
        f"the package {FOREIGN} {version} of another project is installed in the same environment and has the same "
        f"import name as {DISTRIBUTION}; use one environment for each, or: pip uninstall {FOREIGN}, then pip install "
        f"--force-reinstall {DISTRIBUTION}"
    )


def error_document(message: str, status: int, where: str | None = None) -> dict[str, Any]:
    """A message as plain data, by the pattern that messages have: ``where: what; the rule. What to do.``

    What the message does not say is None; ``where`` is given where the message does not start with it.
    """
    rest = message
    if where is None:
        where, colon, rest = message.partition(": ")
        if not colon or len(where) > 200 or "; " in where:
            where, rest = "", message
    sentences = re.split(r"(?<=[.!?)\]])\s+(?=[A-Z'])", rest.strip())
    problem, _, rule = sentences[0].partition("; ")
    do = " ".join(sentences[1:])
    parts = {"where": where, "problem": problem.rstrip("."), "rule": rule.rstrip("."), "do": do}
    said = {name: part or None for name, part in parts.items()}
    return {"error": {"message": message, **said, "status": status}}


def first_line(error: BaseException) -> str:
    """What an error says, short enough to stand within one of ours."""
    text = str(error).strip()
    return shown(text.splitlines()[0][:300]) if text else type(error).__name__


def is_input_error(error: BaseException) -> bool:
    """Whether the model, the options or this machine are at fault, and not aneforge."""
    return isinstance(error, (AneforgeError, OSError, MemoryError)) or _is_foreign_import(error)


def _is_foreign_import(error: BaseException) -> bool:
    return isinstance(error, ImportError) and not (error.name or "").startswith("aneforge")


_NO_ROOM = ("failed to map segment", "annot allocate memory", "not enough memory")  # what a loader says


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this machine had no memory left, wherever that was noticed: nothing is wrong with a file then."""
    text = str(error) if isinstance(error, (ImportError, OSError)) else ""
    return isinstance(error, MemoryError) or any(words in text for words in _NO_ROOM)


def line_of(error: BaseException) -> str:
    """An error as the one line that a user reads: on the command line, in a row of a sweep, on a served page."""
    if isinstance(error, AneforgeError):
        return str(error)
    if is_out_of_memory(error):
        return "not enough memory for this model on this machine; use a smaller one, or more memory"
    if _is_foreign_import(error):
        return shown(f"a package cannot be loaded ({str(error)[:300]}); install it again")
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return shown(f"{name}{error.strerror or error}")
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return shown(
        f"internal error in {_place(error)}: {what[:300]}. This is a bug in aneforge: please report this line, the "
        f"command and, if you can, the model ({TRACEBACK}=1 adds the details)"
    )


def _place(error: BaseException) -> str:
    """The last line of this package on the way to an error, without the folders of this machine."""
    import traceback  # only a fault of this package pays for the imports
    from pathlib import Path

    package = Path(__file__).resolve().parent
    inside = [
        f"{Path(frame.filename).relative_to(package.parent).as_posix()}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(package)
    ]
    return inside[-1] if inside else "aneforge"


def install_hint(extra: str) -> str:
    """The command that installs an optional part: ``onnx``, ``coreml``, ``torch``, ``sweep`` and so on."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def nearest(name: str, known: Iterable[str], count: int = 4) -> list[str]:
    """Known names that look like ``name``, best first; empty when nothing is close."""
    from difflib import get_close_matches  # only a failing look-up pays for the import

    spelled = {candidate.casefold(): candidate for candidate in known}
    hits = get_close_matches(name.casefold(), list(spelled), n=count, cutoff=0.5)
    return [spelled[hit] for hit in hits]


# Warnings about numbers. They never stop a compile.


class PrecisionWarning(UserWarning):
    """fp16 may not hold what a graph computes."""


class CrossChipFP16Warning(UserWarning):
    """The same graph can give other numbers on another chip."""
