"""The kernels of a GPU on a CPU: the same source, compiled as C++, a fibre for each thread. For tests."""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.errors import UnavailableError
from aneforge.sim.gpu.device import GpuMemory, source_of, threads_of

Array = np.ndarray
_FOLDER = Path(__file__).parent
_FLAGS = "-std=c++17 -O1 -ffp-contract=off -fPIC -shared -DEMULATED -x c++"


class EmulatedDevice:
    """Memory of this process, and kernels that run one thread at a time."""

    name = "emulated"

    def __init__(self) -> None:
        self._arrays: dict[int, Array] = {}

    def use(self) -> None:
        """Nothing: it is every thread's."""

    def empty(self, size: int) -> GpuMemory:
        room = np.full(max(size, 16) + 16, 0xA5, np.uint8)
        address = -(-room.ctypes.data // 16) * 16
        self._arrays[address] = room
        return GpuMemory(self, address, size)

    def give_back(self, buffer: GpuMemory) -> None:
        self._arrays.pop(buffer.address, None)

    def zeroed(self, size: int) -> GpuMemory:
        buffer = self.empty(size)
        ctypes.memset(buffer.address, 0, size)
        return buffer

    def upload(self, array: Array) -> GpuMemory:
        dense = np.ascontiguousarray(array)
        buffer = self.empty(dense.nbytes)
        ctypes.memmove(buffer.address, dense.ctypes.data, dense.nbytes)
        return buffer

    def download(self, buffer: GpuMemory, shape: Sequence[int], dtype: Any) -> Array:
        array = np.empty(shape, dtype)
        ctypes.memmove(array.ctypes.data, buffer.address, array.nbytes)
        return array

    def launch(self, kernel: str, job: ctypes.Structure, grid: Sequence[int]) -> None:
        function = getattr(_library(source_of(kernel)), f"emulated_{kernel}")
        function(ctypes.byref(job), (ctypes.c_uint * 3)(*grid), ctypes.c_uint(threads_of(kernel)))


@lru_cache(maxsize=8)
def _library(source: str) -> ctypes.CDLL:
    compiler = shlex.split(os.environ.get("CXX") or "c++")
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "kernels.so"
        command = [*compiler, *_FLAGS.split(), "-o", str(made), str(_FOLDER / source)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)  # noqa: S603
        except (OSError, subprocess.SubprocessError) as error:
            said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            raise UnavailableError(
                f"emulation: {source} does not compile ({said[0]}); install a C++ compiler"
            ) from None
        return ctypes.CDLL(str(made))
