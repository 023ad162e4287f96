"""The weight files of a network: numbers as memory maps, from files in the netplist's own folder only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.budgets import regular_file
from aneforge.cache import depends_on
from aneforge.frontends import LoadError
from aneforge.frontends.netplist.schema import quoted


class Weights:
    """The files that a network lists; each is opened when numbers of it are asked for."""

    def __init__(self, netplist: Path, files: Sequence[str]) -> None:
        self.folder, self.files = netplist.resolve().parent, files
        self._paths: dict[int, tuple[Path, int]] = {}

    def numbers(self, key: str, index: Any, offset: Any, shape: tuple[int, ...], kind: Any) -> np.ndarray:
        """Numbers of one file. ``key`` names what states their place."""
        if not isinstance(index, int) or not 0 <= index < len(self.files):
            raise LoadError(f"{key}: weight file {quoted(index)} is out of range; Weights has {len(self.files)} files")
        path, size = self._path(index)
        needed = math.prod(shape) * np.dtype(kind).itemsize
        if not isinstance(offset, int) or offset < 0 or offset + needed > size:
            raise LoadError(
                f"{key}: weight file {quoted(self.files[index])} has {size} bytes; "
                f"the {needed} bytes at offset {quoted(offset)} are not inside it"
            )
        return np.memmap(path, kind, "r", offset, shape)

    def _path(self, index: int) -> tuple[Path, int]:
        known = self._paths.get(index)
        if known is not None:
            return known
        name = self.files[index]
        where = f"weight file {quoted(name)}"
        try:
            path = (self.folder / name).resolve()
            inside = path.is_relative_to(self.folder)
            exists = inside and path.exists()
        except (OSError, ValueError, RuntimeError):  # a name that no file can have
            raise LoadError(f"{where} is not a name for a file") from None
        if not inside:
            raise LoadError(f"{where} points outside the netplist's folder; it must be inside")
        depends_on(path)  # also where it is missing: a copy of it changes the answer
        if not exists:
            raise LoadError(f"{where} does not exist; copy it to the netplist's folder")
        regular_file(path, where)
        self._paths[index] = path, path.stat().st_size
        return self._paths[index]
