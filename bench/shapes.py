# pyright: reportMissingImports=false
"""How long a check of every shape that a file lists takes, over that of one shape. Prints ratios in one run.

``python bench/shapes.py`` writes packages with coremltools: one model with a fixed shape, and the same with several
listed shapes and with a range. Each is checked in a process of its own, without a cache, on the default chips. The bar
is 1.3 for all shapes over one. ``--rules`` measures what a hundred more rules cost a preflight; the bar is 1.1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from statistics import median
from typing import Any

WIDTH, LAYERS, ROWS = 256, 24, (64, 128, 256, 384, 512)
REPEATS = 5
_CHECK = """
import sys, time
from aneforge.study.checking import check
from aneforge.study.shapes import check_shapes, open_shapes
path = sys.argv[1]
start = time.process_time()
shapes = open_shapes(path, {}, None)
report = check(path) if shapes is None else check_shapes(path)
report.text()
print(time.process_time() - start)
"""


def write(folder: Path) -> dict[str, Path]:
    """The packages, by what they are called in the table."""
    import coremltools as ct
    import torch

    class Layers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                scores = torch.softmax(x @ x.transpose(-1, -2), -1)
                x = torch.nn.functional.gelu(layer(x)) + scores @ x
            return x

    traced = torch.jit.trace(Layers().eval(), torch.zeros(ROWS[0], WIDTH))
    forms = {
        "one shape": ct.Shape((ROWS[0], WIDTH)),
        f"{len(ROWS)} listed shapes": ct.EnumeratedShapes([(rows, WIDTH) for rows in ROWS], default=(ROWS[0], WIDTH)),
        "a range": ct.Shape((ct.RangeDim(1, ROWS[-1], default=ROWS[0]), WIDTH)),
    }
    paths = {}
    for place, (name, shape) in enumerate(forms.items()):
        paths[name] = folder / f"net{place}.mlpackage"
        model: Any = ct.convert(
            traced,
            inputs=[ct.TensorType(name="x", shape=shape)],
            minimum_deployment_target=ct.target.iOS17,
            skip_model_load=True,
        )
        model.save(str(paths[name]))
    return paths


def seconds(path: Path) -> float:
    """CPU seconds of a check in a new process."""
    command = [sys.executable, "-W", "ignore", "-c", _CHECK, str(path)]
    environment = {**os.environ, "ANEFORGE_NO_CACHE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)  # noqa: S603
    return float(done.stdout.split()[-1])


def shapes() -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = write(Path(folder))
        times: dict[str, list[float]] = {name: [] for name in paths}
        for _ in range(REPEATS):
            for name, path in paths.items():
                times[name].append(seconds(path))
    one = median(times["one shape"])
    for name, taken in times.items():
        print(f"{name:20} {median(taken):6.2f} s of CPU, {median(taken) / one:5.2f} times one shape (bar 1.3)")


def rules() -> None:
    """A preflight of a transformer with a hundred more records, which concern its ops and refuse none of them."""
    from time import process_time

    from gate import transformer
    from verdicts import read_again

    import aneforge as af
    from aneforge.chips import store
    from aneforge.study.study import Study

    def measured() -> float:
        """With the answers about signatures forgotten, so that every rule is asked again."""
        read_again()
        graph = af.Graph([transformer(af, 10_000)])
        start = process_time()
        Study(graph, "m1,m2,m3,m4,m5,m6").preflights()
        return process_time() - start

    document = store.load("gate_limits")
    whole = document["rules"]
    spare = next(record for record in whole if record["rule"] == "attention-history")
    more = [*whole, *({**spare, "v": 1 << 40} for _ in range(100))]
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(REPEATS):
        for many, taken in times.items():
            document["rules"] = more if many else whole
            taken.append(measured())
    before, after = (median(times[many]) for many in times)
    print(
        f"preflight of 10,000 nodes on six chips {before:.3f} s, with a hundred more rules {after:.3f} s: "
        f"{after / before:.2f} times (bar 1.1)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rules", action="store_true", help="measure what a hundred more rules cost a preflight")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    if options.rules:
        rules()
    else:
        shapes()


if __name__ == "__main__":
    main()
