"""Plans of large models: seconds and memory of each, in a process of its own.

``python bench/split.py`` plans decoders of up to 8 billion weights for three chips and prints what that takes.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

from decoder_graphs import REAL, graph_of

import aneforge as af

CHIPS = "m4,a17-pro,m1"
FORMS = ("fp16", "int4")


def one(name: str, weights: str, chips: str) -> None:
    """Plan one model in this process, and print what it took as JSON."""
    start = time.perf_counter()
    graph = graph_of(REAL[name], 1, 2048, "state")
    built = time.perf_counter()
    plan = af.split_model(graph, chips, weights=weights)
    text = str(plan)
    done = time.perf_counter()
    rates = {
        chip: {
            "programs": len(one.programs),
            "decode": None if one.decode is None or one.decode.tokens_per_s is None else one.decode.tokens_per_s[1],
            "prompt": None if one.prompt is None or one.prompt.tokens_per_s is None else one.prompt.tokens_per_s[1],
        }
        for chip, one in plan.items()
    }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps({"build_s": built - start, "plan_s": done - built, "mb": peak, "chips": rates, "chars": len(text)})
    )


def measured(name: str, weights: str, chips: str) -> dict[str, object]:
    """The same in a process of its own, so that memory is that of one plan."""
    words = [sys.executable, __file__, "--one", name, weights, chips]
    done = subprocess.run(words, capture_output=True, text=True, check=True)  # noqa: S603 - this file
    return json.loads(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description="Seconds and memory of plans of large models.")
    parser.add_argument("--one", nargs=3, metavar=("MODEL", "WEIGHTS", "CHIPS"), help="plan one model and print JSON")
    chosen = parser.parse_args()
    if chosen.one:
        one(*chosen.one)
        return 0
    print(f"{'model':14} {'weights':7} {'plan s':>7} {'MB':>6}   programs and tokens/s (decode, prompt)")
    for name in REAL:
        for weights in FORMS:
            record = measured(name, weights, CHIPS)
            chips = "; ".join(
                f"{chip} {rates['programs']}: {_shown(rates['decode'])}, {_shown(rates['prompt'])}"
                for chip, rates in record["chips"].items()  # type: ignore[union-attr]
            )
            print(f"{name:14} {weights:7} {record['plan_s']:7.2f} {record['mb']:6.0f}   {chips}")
    return 0


def _shown(rate: float | None) -> str:
    return "?" if rate is None else f"{rate:.1f}"


if __name__ == "__main__":
    sys.exit(main())
