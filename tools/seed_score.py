"""Print how this project stands to every statement of the seed documents: ``python tools/seed_score.py [--all]``.

The rows are ``tests/seed_statements/*.txt``; each has a call that shows it, and every call is made.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))


def main(argv: list[str] | None = None) -> int:
    from seed_kit import holds, statements  # type: ignore[import-not-found]

    parser = argparse.ArgumentParser(description="Make the call behind every statement of the seeds.")
    parser.add_argument("--all", action="store_true", help="print every statement with its call")
    everything = parser.parse_args(argv).all
    counts: Counter[str] = Counter()
    for statement in statements():
        try:
            kind = statement.kind if holds(statement) else "wrong"
        except Exception as error:  # a call that fails is a statement that is not shown
            kind = "wrong"
            print(f"{statement.id}: {type(error).__name__}: {error}", file=sys.stderr)
        counts[kind] += 1
        if everything or kind == "wrong":
            mark = "" if statement.mark == "=" else f" [{statement.mark}]"
            print(f"{statement.id} {kind}{mark}: {statement.says}\n    {statement.call}")
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()), f"of {counts.total()} statements")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
