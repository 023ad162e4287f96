"""Train one seeded network on the arithmetic of several chips, and see where their weights part.

    python examples/train_digits.py --target m1,m2,m5
    python examples/train_digits.py --data mnist.npz --steps 300

Without --data it trains on scikit-learn's digits (pip install scikit-learn). It prints a table, with the first chip as
the reference, and writes the drift of the weights as a picture.
"""

from __future__ import annotations

import argparse
import sys

from aneforge.errors import AneforgeError
from aneforge.files import write_whole
from aneforge.train.digits import digit_net, read_digits
from aneforge.train.drift_plot import drift_svg
from aneforge.train.parity import compare_training


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="m1,m2,m5", help="chips; the first is the reference")
    parser.add_argument("--data", help="an .npz of MNIST: x_train y_train x_test y_test")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--loss-scale", type=float, default=1024.0)
    parser.add_argument("--optimizer", choices=("sgd", "adam"), default="sgd")
    parser.add_argument("--host", action="store_true", help="the optimiser on the host, in float32")
    parser.add_argument("--mode", choices=("exact", "fast"), default="exact")
    parser.add_argument("--windows", choices=("slices", "kernel"), default="slices")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="drift.svg", help="where the picture goes")
    return parser.parse_args()


def main() -> int:
    chosen = arguments()
    digits = read_digits(chosen.data)
    net = digit_net(chosen.batch, digits.side, chosen.seed, chosen.windows)
    options = {
        "loss_scale": chosen.loss_scale,
        "optimizer": chosen.optimizer,
        "device_optimizer": not chosen.host,
        "resident_state": not chosen.host,
        "mode": chosen.mode,
    }
    parity = compare_training(
        net.objective,
        net.params,
        chosen.lr,
        [digits.images, digits.targets],
        chosen.steps,
        chosen.target,
        logits=net.logits,
        test=(digits.test_images, digits.test_labels),
        seed=chosen.seed,
        progress=True,
        options=options,
    )
    print(
        f"{digits.name}: {len(digits.labels)} pictures, {len(digits.test_labels)} for the test; {chosen.steps} steps"
    )
    print(parity)
    for run in parity.runs.values():
        print(run.plan)
    write_whole(chosen.out, drift_svg(parity, f"Drift of trained weights, {digits.name}, {chosen.steps} steps"))
    print(f"the drift is in {chosen.out}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AneforgeError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
