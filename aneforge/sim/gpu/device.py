"""A GPU by the CUDA driver: memory, kernels compiled when they are first used, and arrays to and from it.

Nothing of a framework is needed: the driver comes with the GPU, and NVRTC with the ``gpu`` extra, with a CUDA toolkit,
or with PyTorch.
"""

from __future__ import annotations

import ctypes
import glob
import os
import site
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from aneforge.errors import UnavailableError, install_hint

Array = np.ndarray
SHARED_BYTES = {
    "product": 2 * 16 * (8 * 64 + 6 * 128) + 2 * 4 * 256 + 4 * 64 * 128,
    "largest": 4 * 256,
    "reduced_groups": 8 * 256,
}
"""Shared memory of a block of each kernel that uses some."""
THREADS = {"product": 128}
_USUAL_THREADS = 256
SOURCES = {"product": "product.cu"}
"""The file of each kernel; all others are in one."""
_PLANAR = "planar.cu"
_FOLDER = Path(__file__).parent


class GpuMemoryError(UnavailableError):
    """The memory of a device does not hold what one sample needs."""


class GpuMemory:
    """Memory of a device; given back when nothing refers to it."""

    def __init__(self, device: Any, address: int, size: int) -> None:
        self.device, self.address, self.size = device, address, size

    def __del__(self) -> None:
        self.device.give_back(self)


class GpuDevice(Protocol):
    """What a plan needs of a device."""

    name: str

    def empty(self, size: int) -> GpuMemory: ...

    def upload(self, array: Array) -> GpuMemory: ...

    def download(self, buffer: GpuMemory, shape: Sequence[int], dtype: Any) -> Array: ...

    def zeroed(self, size: int) -> GpuMemory: ...

    def launch(self, kernel: str, job: ctypes.Structure, grid: Sequence[int]) -> None: ...

    def give_back(self, buffer: GpuMemory) -> None: ...

    def use(self) -> None: ...


def source_of(kernel: str) -> str:
    """The file that holds a kernel."""
    return SOURCES.get(kernel, _PLANAR)


def threads_of(kernel: str) -> int:
    return THREADS.get(kernel, _USUAL_THREADS)


class CudaDevice:
    """The first GPU that CUDA lists (CUDA_VISIBLE_DEVICES chooses another)."""

    def __init__(self) -> None:
        self._free: dict[int, list[int]] = {}
        self._driver = _driver()
        self._call("cuInit", 0)
        handle, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(handle), 0)
        name = ctypes.create_string_buffer(128)
        self._call("cuDeviceGetName", name, 128, handle)
        self.name = name.value.decode()
        version = [ctypes.c_int(), ctypes.c_int()]
        for attribute, part in zip((75, 76), version, strict=True):
            self._call("cuDeviceGetAttribute", ctypes.byref(part), attribute, handle)
        self._architecture = f"sm_{version[0].value}{version[1].value}"
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), handle)
        self.use()
        self._modules: dict[str, ctypes.c_void_p] = {}
        self._kernels: dict[str, ctypes.c_void_p] = {}

    def _call(self, name: str, *values: Any) -> None:
        status = getattr(self._driver, name)(*values)
        if status:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorString(status, ctypes.byref(text))
            why = (text.value or b"?").decode()
            if status == _OUT_OF_MEMORY:
                raise GpuMemoryError(f"device cuda: {why}: one sample does not fit. Choose --device cpu.")
            raise UnavailableError(f"device cuda: {name}: {why}. Choose --device cpu, or look at nvidia-smi.")

    def use(self) -> None:
        """Make it the device of this thread."""
        self._call("cuCtxSetCurrent", self._context)

    # Memory: blocks that were given back are used again, so that a run allocates nothing after its first batch.

    def empty(self, size: int) -> GpuMemory:
        rounded = max(256, -(-size // 256) * 256)
        known = self._free.get(rounded)
        if known:
            return GpuMemory(self, known.pop(), rounded)
        address = ctypes.c_uint64()
        status = self._driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(rounded))
        if status == _OUT_OF_MEMORY:
            self._release()
            self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(rounded))
        elif status:
            self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(rounded))
        return GpuMemory(self, address.value, rounded)

    def give_back(self, buffer: GpuMemory) -> None:
        self._free.setdefault(buffer.size, []).append(buffer.address)

    def _release(self) -> None:
        self._call("cuCtxSynchronize")
        for addresses in self._free.values():
            for address in addresses:
                self._driver.cuMemFree_v2(ctypes.c_uint64(address))
        self._free.clear()

    def zeroed(self, size: int) -> GpuMemory:
        buffer = self.empty(size)
        self._call("cuMemsetD8Async", ctypes.c_uint64(buffer.address), 0, ctypes.c_size_t(size), None)
        return buffer

    def upload(self, array: Array) -> GpuMemory:
        dense = np.ascontiguousarray(array)
        buffer = self.empty(dense.nbytes)
        self._call(
            "cuMemcpyHtoD_v2",
            ctypes.c_uint64(buffer.address),
            ctypes.c_void_p(dense.ctypes.data),
            ctypes.c_size_t(dense.nbytes),
        )
        return buffer

    def download(self, buffer: GpuMemory, shape: Sequence[int], dtype: Any) -> Array:
        array = np.empty(shape, dtype)
        self._call(
            "cuMemcpyDtoH_v2",
            ctypes.c_void_p(array.ctypes.data),
            ctypes.c_uint64(buffer.address),
            ctypes.c_size_t(array.nbytes),
        )
        return array

    # Kernels.

    def launch(self, kernel: str, job: ctypes.Structure, grid: Sequence[int]) -> None:
        function = self._kernels.get(kernel) or self._loaded(kernel)
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(job))
        self._call(
            *("cuLaunchKernel", function, *(ctypes.c_uint(size) for size in grid)),
            *(ctypes.c_uint(threads_of(kernel)), ctypes.c_uint(1), ctypes.c_uint(1)),
            *(ctypes.c_uint(SHARED_BYTES.get(kernel, 0)), None, pointers, None),
        )

    def wait(self) -> None:
        """Until everything is done that was started."""
        self._call("cuCtxSynchronize")

    def _loaded(self, kernel: str) -> ctypes.c_void_p:
        source = source_of(kernel)
        if source not in self._modules:
            module, binary = ctypes.c_void_p(), compiled(source, self._architecture)
            self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(binary))
            self._modules[source] = module
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), self._modules[source], kernel.encode())
        shared = SHARED_BYTES.get(kernel, 0)
        if shared > _USUAL_SHARED:
            self._call("cuFuncSetAttribute", function, 8, ctypes.c_int(shared))
        self._kernels[kernel] = function
        return function


_OUT_OF_MEMORY = 2
_USUAL_SHARED = 48 << 10


def _driver() -> ctypes.CDLL:
    for name in ("nvcuda.dll",) if os.name == "nt" else ("libcuda.so.1", "libcuda.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise UnavailableError(
        "device cuda: this machine has no NVIDIA driver (libcuda). Choose --device cpu, or run where a GPU is."
    )


def compiled(source: str, architecture: str, options: Sequence[str] = ()) -> bytes:
    """The machine code of a file of kernels, which takes NVRTC a second or two."""
    text = (_FOLDER / "common.cuh").read_text("utf-8"), (_FOLDER / source).read_text("utf-8")
    library = _nvrtc()
    flags = [f"--gpu-architecture={architecture}", "--fmad=false", "--std=c++17", *options]
    program = ctypes.c_void_p()
    headers, names = (ctypes.c_char_p * 1)(text[0].encode()), (ctypes.c_char_p * 1)(b"common.cuh")
    library.nvrtcCreateProgram(ctypes.byref(program), text[1].encode(), source.encode(), 1, headers, names)
    given = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
    if library.nvrtcCompileProgram(program, len(flags), given):
        size = ctypes.c_size_t()
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, log)
        line = next((line for line in log.value.decode().splitlines() if "error" in line), "?")
        raise UnavailableError(f"device cuda: {source} does not compile for {architecture} ({line}); update NVRTC.")
    size = ctypes.c_size_t()
    library.nvrtcGetCUBINSize(program, ctypes.byref(size))
    binary = ctypes.create_string_buffer(size.value)
    library.nvrtcGetCUBIN(program, binary)
    return binary.raw


def _nvrtc() -> ctypes.CDLL:
    """NVRTC, wherever it came from."""
    roots = [*site.getsitepackages(), site.getusersitepackages(), *(entry for entry in sys.path if entry)]
    patterns = [f"{root}/nvidia/*/lib/libnvrtc.so*" for root in roots]
    patterns += [f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/lib64/libnvrtc.so*"]
    files = [file for pattern in patterns for file in sorted(glob.glob(pattern), reverse=True) if "alt" not in file]
    for name in (*files, "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "nvrtc64_130_0.dll", "nvrtc64_120_0.dll"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise UnavailableError(f"device cuda: NVRTC is not installed. Install it with {install_hint('gpu')}.")
