"""Speed of the target database: import, look-ups, the command line. Prints figures, asserts nothing.

Run with ``make bench`` or ``python bench/targets.py [--json]``. Every figure is the best of several runs;
start-up is given beside the same figure for an empty interpreter and for NumPy alone.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

RUNS = 7


def best(action: Callable[[], object], runs: int = RUNS) -> float:
    """Best wall-clock seconds of several runs."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def process(*words: str) -> float:
    command = [sys.executable, *words]
    return best(lambda: subprocess.run(command, check=True, capture_output=True))  # noqa: S603


def after_numpy(statement: str) -> float:
    """Best seconds that a statement takes in a fresh process which has imported NumPy already."""
    code = f"import numpy, time; start = time.perf_counter(); {statement}; print(time.perf_counter() - start)"
    command = [sys.executable, "-c", code]
    return min(
        float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603
        for _ in range(RUNS)
    )


def status_lookups(count: int) -> float:
    from aneforge.chips import Family, op_status

    ops = ("conv", "matmul", "softmax", "sin", "topk", "layer_norm", "gelu", "resize_bilinear")
    families = (Family.A13, Family.A14, Family.A15, Family.A16)
    pairs = [(op, family) for op in ops for family in families]
    op_status("conv", Family.A13)

    def run() -> None:
        for _ in range(count // len(pairs)):
            for op, family in pairs:
                op_status(op, family)

    return best(run, 3)


def data_loading() -> dict[str, float]:
    from aneforge.chips import store

    paths = sorted(store.DATA.glob("*.json"))
    every = [path.stem for path in paths if path.stem != "manifest"]

    def load() -> None:
        store.clear()
        for topic in every:
            store.load(topic)

    return {"seconds": best(load), "bytes": float(sum(path.stat().st_size for path in paths))}


def measure() -> dict[str, float]:
    loading = data_loading()
    resolve = "import aneforge; aneforge.target('M1').hal.max_tensor_width"
    return {
        "interpreter start, ms": 1e3 * process("-c", "pass"),
        "interpreter start and import numpy, ms": 1e3 * process("-c", "import numpy"),
        "import aneforge on top of numpy, ms": 1e3 * after_numpy("import aneforge"),
        "the same, resolve 'M1' and read one HAL field, ms": 1e3 * after_numpy(resolve),
        "1,000,000 op_status look-ups, s": status_lookups(1_000_000),
        "load and check every data file, ms": 1e3 * loading["seconds"],
        "data files, KB": loading["bytes"] / 1024,
        "aneforge targets, ms": 1e3 * process("-m", "aneforge", "targets"),
        "aneforge targets m2, ms": 1e3 * process("-m", "aneforge", "targets", "m2"),
        "aneforge hal h13 --compare h17s, ms": 1e3 * process("-m", "aneforge", "hal", "h13", "--compare", "h17s"),
        "aneforge ops --target m1,m2,m5, ms": 1e3 * process("-m", "aneforge", "ops", "--target", "m1,m2,m5"),
    }


def main() -> None:
    figures = measure()
    if "--json" in sys.argv[1:]:
        print(json.dumps(figures, indent=2))
        return
    print(f"target database, Python {platform.python_version()}, {Path(__file__).name}")
    width = max(map(len, figures))
    for name, value in figures.items():
        print(f"  {name.ljust(width)}  {value:8.2f}")


if __name__ == "__main__":
    main()
