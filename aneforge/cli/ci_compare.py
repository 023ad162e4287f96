"""``aneforge ci compare``: models against their versions at a commit, as the text of a comment."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from aneforge import text
from aneforge.cli import say
from aneforge.cli.notes import working
from aneforge.errors import AneforgeError
from aneforge.files import write_whole
from aneforge.reports.against import ReportComparison, compare_reports
from aneforge.reports.gather import report

_SECONDS = 60.0  # for git to give a file


def run(models: Sequence[str], base: str, chips: str, out: str | None, as_json: bool) -> None:
    """Print or write one comparison for each model; what is new has nothing to compare with."""
    parts: list[str] = []
    documents: dict[str, object] = {}
    for model in models:
        with tempfile.TemporaryDirectory() as scratch, working(f"comparing {model} with {base}"):
            before = _at_commit(Path(model), base, Path(scratch))
            found = None if before is None else _compared(before, Path(model), chips)
        documents[model] = None if found is None else found.to_json()
        parts.append(f"`{model}` is new since {base}.\n" if found is None else found.written("md"))
    answer = text.as_json({"base": base, "models": documents}) if as_json else "\n".join(parts).rstrip()
    if out is None:
        sys.stdout.write(f"{answer}\n")
        return
    write_whole(out, f"{answer}\n")
    say.note(f"wrote {out}")


def _compared(before: Path, after: Path, chips: str) -> ReportComparison:
    return compare_reports(report(before, chips, changes=0), report(after, chips, changes=0))


def _at_commit(model: Path, base: str, scratch: Path) -> Path | None:
    """The model as it was, in a folder of its own; None where it was not there."""
    if not model.is_file():
        raise AneforgeError(f"{model}: not a file. A model that is a folder cannot be read from a commit.")
    folder = model.resolve().parent
    if _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}").returncode:
        raise AneforgeError(f"--base {base}: not a commit of the repository of {model}. Fetch it, or name another.")
    done = _git(folder, "show", f"{base}:./{model.name}")
    if done.returncode:
        return None
    before = scratch / model.name
    before.write_bytes(done.stdout)
    return before


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    try:
        command = ["git", "-C", str(folder), *words]
        return subprocess.run(command, capture_output=True, check=False, timeout=_SECONDS)  # noqa: S603
    except FileNotFoundError:
        raise AneforgeError("git: it is not installed, and only it has earlier versions of a file.") from None
    except subprocess.TimeoutExpired:
        problem = f"git: reading the file took more than {_SECONDS:g} s, which is the limit"
        raise AneforgeError(f"{problem}. Use a smaller repository.") from None
