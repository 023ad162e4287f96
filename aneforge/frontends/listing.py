"""The model files of a folder: one answer for sweeps over folders and for archives that are uploaded."""

from __future__ import annotations

from pathlib import Path

from aneforge.frontends import FORMATS

_SAVED = ".aneforge"
MODEL_ENDINGS = (*FORMATS, _SAVED)
"""What model files end in. Python files are not among them: they are run to be read."""
_HIDDEN = (".", "__MACOSX")
"""What names begin with that systems and tools put beside people's files."""


def model_files(folder: Path) -> list[Path]:
    """The model files in a folder and below, in order; a model that is a folder is one of them."""
    waiting, files = [folder], []
    while waiting:
        for entry in waiting.pop().iterdir():
            if entry.name.startswith(_HIDDEN):
                continue
            model_format = FORMATS.get(entry.suffix.casefold())
            if entry.is_dir():
                if model_format is not None and model_format.folder:
                    files.append(entry)
                elif not entry.is_symlink():  # a link may lead back
                    waiting.append(entry)
            elif entry.is_file() and entry.suffix.casefold() in MODEL_ENDINGS:
                files.append(entry)
    return sorted(files)
