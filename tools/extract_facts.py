"""Write the extract of published measurements that the tests of a plain clone rest on: ``tests/evidence/*.json``.

``python tools/extract_facts.py FACTS`` reads the folder of facts and takes a few rows of every kind, evenly spread
over the rows of that kind: of times by class of op and chip (those that the fit uses), of numbers by kind and op, of
verdicts by class of op, verdict, tier and route. Rows are taken whole, with their sources. The choice is by kind only,
never by how well the product does on a row.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from aneforge.cost.evaluate import NOT_FITTED

Row = dict[str, Any]
EVIDENCE = Path(__file__).resolve().parent.parent / "tests" / "evidence"


def taken(rows: Iterable[Row], kind: Callable[[Row], tuple[Any, ...]], most: int) -> list[Row]:
    """Some rows of each kind, evenly spread over them."""
    members: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        members.setdefault(kind(row), []).append(row)
    return [row for alike in members.values() for row in alike[:: max(1, -(-len(alike) // most))]]


def write(name: str, key: str, rows: list[Row], source: list[Path], facts: Path) -> None:
    files = ", ".join(str(path.relative_to(facts)) for path in source)
    document = {"extract_of": files, key: rows}
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    head = json.dumps({"extract_of": document["extract_of"]})[:-1]
    (EVIDENCE / name).write_text(f"{head},\n{json.dumps(key)}: [\n{lines}\n]}}\n", encoding="utf-8")
    print(f"{name}: {len(rows)} rows")


def rows_of(path: Path, key: str) -> list[Row]:
    return json.loads(path.read_text(encoding="utf-8"))[key]


def main() -> int:
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print("extract_facts.py: name the folder of facts", file=sys.stderr)
        return 2
    facts = Path(sys.argv[1])
    EVIDENCE.mkdir(exist_ok=True)
    times = facts / "silicon" / "train.json"
    fitted = [row for row in rows_of(times, "rows") if row["quality"] not in NOT_FITTED]
    write("times.json", "rows", taken(fitted, lambda row: (row["op_class"], row["chip"]), 2), [times], facts)
    numbers = facts / "silicon" / "numerics_train.json"
    known = rows_of(numbers, "facts")
    write("numbers.json", "facts", taken(known, lambda row: (row["kind"], row["op"]), 1), [numbers], facts)
    verdicts = [facts / "silicon" / "verdicts_train.json", facts / "second" / "verdicts.json"]
    both = [row for path in verdicts for row in rows_of(path, "rows")]

    def case(row: Row) -> tuple[Any, ...]:
        return row.get("op_class"), row["verdict"], row.get("tier"), row.get("route")

    write("verdicts.json", "rows", taken(both, case, 1), verdicts, facts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
