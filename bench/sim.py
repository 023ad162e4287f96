"""Speed of the exact arithmetic: figures only, nothing is asserted.

``python bench/sim.py`` multiplies square matrices and convolves maps as the engine would, to the bit, with the native
kernel and with the plain NumPy form, and prints rates in GFLOP/s (two operations a multiply-add, those of the direct
convolution for Winograd too) beside NumPy's float32 matmul of the same shapes. One core and all of them; each in a
process of its own, because the number of threads of NumPy's library is fixed when it starts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from aneforge.sim import convolution, native
from aneforge.sim.mac import products

CUBES = (512, 1024, 2048)
MAPS = ((64, 56), (256, 14))
PLAIN_SECONDS = 8.0  # the plain form is timed on a part of the rows if all of them would take longer
PLAIN_RATE = 0.15e9  # roughly, to choose that part
REPEATS = 5


def fastest(call: Callable[[], object], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def rates(exact: Callable[[int], object], single: Callable[[], object], rows: int, work: float) -> dict[str, float]:
    """GFLOP/s of the native, the plain and NumPy's float32 form; ``exact`` takes how many rows to compute."""
    found = {"float32": work / fastest(single, REPEATS + 1) / 1e9}
    os.environ["ANEFORGE_NATIVE"] = "1"
    if native.available():
        exact(rows)
        found["native"] = work / fastest(lambda: exact(rows), REPEATS) / 1e9
    os.environ["ANEFORGE_NATIVE"] = "0"
    part = max(1, min(rows, int(rows * PLAIN_SECONDS * PLAIN_RATE / work)))
    found["plain"] = work * part / rows / fastest(lambda: exact(part), 2) / 1e9
    return found


def gemm(size: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size), np.float32) / np.float32(np.sqrt(size)) for _ in range(2))
    left, right = a.astype(np.float16), b.astype(np.float16)
    return rates(lambda rows: products(left[:rows], right), lambda: a @ b, size, 2.0 * size**3)


def convolved(form: str, channels: int, extent: int) -> dict[str, float]:
    rng = np.random.default_rng(1)
    x = np.pad(rng.standard_normal((channels, extent, extent)), ((0, 0), (1, 1), (1, 1))).astype(np.float16)
    kernel = (rng.standard_normal((channels, channels, 3, 3)) * np.sqrt(2 / (9 * channels))).astype(np.float16)
    patches = rng.standard_normal((9 * channels, extent * extent), np.float32)
    weights = kernel.reshape(channels, -1).astype(np.float32)
    call = getattr(convolution, form)
    return rates(
        lambda outputs: call(x, kernel[:outputs]), lambda: weights @ patches, channels, 18.0 * channels**2 * extent**2
    )


def measure() -> dict[str, dict[str, float]]:
    found = {f"gemm {size}": gemm(size) for size in CUBES}
    for channels, extent in MAPS:
        for form in ("direct", "winograd"):
            found[f"{form} {channels} x {extent} x {extent}"] = convolved(form, channels, extent)
    return found


def in_process(cores: int) -> dict[str, dict[str, float]]:
    count = str(cores)
    limits = {"OPENBLAS_NUM_THREADS": count, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count}
    limits |= {"VECLIB_MAXIMUM_THREADS": count, "ANEFORGE_THREADS": count}
    command = [sys.executable, __file__, "--measure"]
    done = subprocess.run(command, env=os.environ | limits, check=True, capture_output=True, text=True)  # noqa: S603
    return json.loads(done.stdout)


def report(cores: int) -> None:
    title = f"{cores} core{'s' * (cores > 1)}, GFLOP/s"
    print(f"\n{title:26} {'native':>8} {'plain':>8} {'float32':>8}  native/plain  native/float32")
    for name, each in in_process(cores).items():
        fast = each.get("native", float("nan"))
        ratios = f"{fast / each['plain']:>13.0f} {fast / each['float32']:>15.2f}"
        print(f"{name:26} {fast:>8.1f} {each['plain']:>8.2f} {each['float32']:>8.1f} {ratios}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true", help="print the figures of this process as JSON")
    if parser.parse_args().measure:
        print(json.dumps(measure()))
        return
    print(native.why_not() or f"native path: {os.environ.get('ANEFORGE_NATIVE_PATH') or native.paths()[-1]}")
    cpus = native.threads()
    for cores in (1, cpus) if cpus > 1 else (1,):
        report(cores)


if __name__ == "__main__":
    main()
