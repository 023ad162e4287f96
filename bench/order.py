"""Newer chips that are estimated slower than older ones of their line: ``python bench/order.py [FOLDER]``.

Estimates every network that ``bench/models.py`` has built (FOLDER, else ``.networks``) on all products,
and counts for each pair of chips how many networks the newer one is slower on, by the cause that the estimate names.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from pathlib import Path

import sketches

import aneforge as af
from aneforge import text
from aneforge.errors import AneforgeError

CHIPS = (
    "m1", "m2", "m3", "m4", "m5", "m6", "m1-pro", "m2-pro", "m3-pro", "m4-pro", "m5-pro", "m1-max", "m2-max", "m3-max",
    "m4-max", "m5-max", "A13 Bionic", "A14 Bionic", "A15 Bionic", "A16 Bionic", "A17 Pro", "A18 Pro", "A19 Pro",
    "A20 Pro",
)  # fmt: skip


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent / ".networks"
    files = sorted(folder.glob("*.sketch"))
    if not files:
        print(f"{folder.name}: no networks here. Build them: python bench/models.py FACTS", file=sys.stderr)
        return 2
    counts: Counter[tuple[str, str, str]] = Counter()
    refused = 0
    for number, file in enumerate(files, 1):
        print(f"\r{number} of {len(files)}", end="", file=sys.stderr, flush=True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                estimates = af.estimate_all(sketches.read(file), CHIPS, "coreml_call", changes=0)
                counts.update((one.older, one.newer, one.because) for one in estimates.slower_and_newer)
        except AneforgeError:
            refused += 1
    print(file=sys.stderr)
    rows = [(newer, older, count, because) for (older, newer, because), count in counts.most_common()]
    print(text.columns(("newer", "slower than", "networks", "because"), rows))
    print(f"{len(files) - refused} networks, {sum(counts.values())} pairs in which the newer chip is slower")
    return 0


if __name__ == "__main__":
    sys.exit(main())
