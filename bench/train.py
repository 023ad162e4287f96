"""Speed of training in the simulator: steps of the seeded small network, and what a step takes beside the simulator.

Run with ``make bench`` or ``python bench/train.py [--json] [--steps N] [--data mnist.npz]``. Asserts no times. Without
``--data`` the pictures are noise of MNIST's size, which takes as long. The overhead of a step is its time without the
run of the program, over that run.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from typing import Any

import numpy as np

from aneforge.sim.executor import ExecutionPlan
from aneforge.train.digits import Digits, digit_net, read_digits
from aneforge.train.loop import batch_of
from aneforge.train.trainer import Trainer

BATCH = 32


def option(name: str, default: str) -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def noise() -> Digits:
    draw = np.random.default_rng(0)
    images = draw.random((1000, 1, 28, 28), dtype=np.float32)
    return Digits("noise", images, draw.integers(0, 10, 1000), images, draw.integers(0, 10, 1000))


def trained(digits: Digits, steps: int, **options: Any) -> tuple[float, float]:
    """Seconds for the steps, and the part of them that the simulator takes."""
    net = digit_net(BATCH, digits.side)
    trainer = Trainer(net.objective, net.params, 0.05, 256.0, **options)
    inside, simulate = 0.0, ExecutionPlan.run

    def timed(plan: ExecutionPlan, *arguments: Any) -> Any:
        nonlocal inside
        start = time.perf_counter()
        done = simulate(plan, *arguments)
        inside += time.perf_counter() - start
        return done

    targets = digits.targets
    ExecutionPlan.run = timed  # type: ignore[method-assign,assignment]
    try:
        start = time.perf_counter()
        for step in range(steps):
            places = batch_of(len(targets), BATCH, 0, step)
            trainer.step(digits.images[places], targets[places])
        return time.perf_counter() - start, inside
    finally:
        ExecutionPlan.run = simulate  # type: ignore[method-assign]


def main() -> None:
    warnings.simplefilter("ignore")
    steps = int(option("--steps", "300"))
    data = option("--data", "")
    digits = read_digits(data) if data else noise()
    figures: dict[str, float] = {}
    start = time.perf_counter()
    net = digit_net(BATCH, digits.side)
    Trainer(net.objective, net.params, 0.05, 256.0, target="m1")
    figures["graph, gradients and program, ms"] = 1e3 * (time.perf_counter() - start)
    for chip in ("m1", "m2", "m5"):
        for mode in ("exact", "fast"):
            seconds, inside = trained(digits, steps, target=chip, mode=mode)
            figures[f"{chip} {mode}, sgd on the host: {steps} steps, s"] = seconds
            figures[f"{chip} {mode}, sgd on the host: overhead of a step, %"] = 100 * (seconds - inside) / inside
    for name in ("sgd", "adam"):
        settings = {"optimizer": name, "device_optimizer": True, "resident_state": True}
        seconds, inside = trained(digits, steps, target="m1", **settings)
        figures[f"m1 exact, {name} on the engine: {steps} steps, s"] = seconds
        figures[f"m1 exact, {name} on the engine: overhead of a step, %"] = 100 * (seconds - inside) / inside
    if "--json" in sys.argv:
        print(json.dumps(figures, indent=1))
    else:
        width = max(map(len, figures))
        print("\n".join(f"{name.ljust(width)}  {value:10.1f}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
