"""How the gate would do on rows it has not seen: leave-out figures over measured verdicts. Prints figures only.

``python bench/verdicts.py VERDICTS.json`` (a file in the schema of verdicts_train.json). For every record of
``gate_limits.json`` it finds the rows whose answer changes when the record is taken away. Then, for many random
halves of the op-and-shape keys, a record counts as known only if some row of the kept half needs it; a row of
the other half is lost where it needs a record that is not known. Two readings: "rows alone" forgets only records
whose sources are the row collections themselves (the "sources" table of gate_limits.json), since the others are
stated by the seeds and the facts too; "all records" forgets every record. The same is done leaving out one source
at a time. Numbers inside a record are not refitted.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from aneforge.gate.evaluate import evaluate, verdict
from aneforge.targets import store

ROUNDS = 200
Row = dict[str, Any]


def forget() -> None:
    """Let the rules read the data again."""
    for name in (
        "aneforge.compiler.legal.rules.base",
        "aneforge.compiler.legal.rules.status",
        "aneforge.compiler.legal.judge",
    ):
        for each in vars(import_module(name)).values():
            if hasattr(each, "cache_clear"):
                each.cache_clear()


def answers(rows: list[Row]) -> list[str]:
    return [str(verdict(row)) for row in rows]


def needed_by(rows: list[Row], right: list[str]) -> dict[tuple[int, bool], set[int]]:
    """For each record, the rows that are answered rightly only while it is there, and whether rows alone back it."""
    document = store.load("gate_limits")
    own = set(document["sources"])
    found: dict[tuple[int, bool], set[int]] = {}
    number = 0
    for section in ("ops", "rules"):
        records = document[section]
        for position in range(len(records)):
            record = records.pop(position)
            forget()
            changed = {i for i, (now, was) in enumerate(zip(answers(rows), right, strict=True)) if now != was}
            records.insert(position, record)
            sources = set(record.get("src", record.get("basis", ())))
            found[number, bool(sources) and sources <= own] = {i for i in changed if right[i] == rows[i]["verdict"]}
            number += 1
    forget()
    return {key: value for key, value in found.items() if value}


def key_of(row: Row) -> str:
    return json.dumps([row["op"], row.get("shapes"), row.get("const"), row.get("attrs")], sort_keys=True)


def lost(needs: list[set[int]], kept: set[int], left: Iterable[int]) -> set[int]:
    """Rows of the left-out part that need a record which no kept row shows."""
    gone = [rows for rows in needs if not rows & kept]
    return {row for row in left if any(row in rows for rows in gone)}


def show(name: str, shares: list[float]) -> None:
    print(f"{name:34} mean {sum(shares) / len(shares):6.1%}   worst {min(shares):6.1%}")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python bench/verdicts.py VERDICTS.json")
    document = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    rows = [row for row in document["rows"] if row["confidence"] != "low"]
    agreement = evaluate(rows)
    print("\n".join(str(agreement).splitlines()[:5]))
    right = answers(rows)
    good = [answer == row["verdict"] for answer, row in zip(right, rows, strict=True)]
    needs = needed_by(rows, right)
    alone = sum(len(each) == 1 for each in needs.values())
    print(f"\n{len(needs)} records decide a row on their own; {alone} of them decide only one")
    for title, part in (
        ("rows alone", [rows_ for (_, learned), rows_ in needs.items() if learned]),
        ("all records", list(needs.values())),
    ):
        print(f"\nforgetting {title} ({len(part)} records)")
        leave_out(rows, good, part)


def leave_out(rows: list[Row], good: list[bool], needs: list[set[int]]) -> None:
    keys = sorted({key_of(row) for row in rows})
    key = [key_of(row) for row in rows]
    wrong = {i for i, row in enumerate(rows) if row["verdict"] == "wrong_result"}
    exact, announced = [], []
    for round_ in range(ROUNDS):
        chosen = set(random.Random(round_).sample(keys, len(keys) // 2))  # noqa: S311
        kept = {i for i in range(len(rows)) if key[i] in chosen}
        left = [i for i in range(len(rows)) if i not in kept]
        missed = lost(needs, kept, left)
        exact.append(sum(good[i] and i not in missed for i in left) / len(left))
        hazards = [i for i in left if i in wrong]
        if hazards:
            announced.append(sum(good[i] and i not in missed for i in hazards) / len(hazards))
    show("random halves: exact", exact)
    show("random halves: wrong announced", announced)
    right_total = 0
    for source in sorted({row["source"] for row in rows}):
        left = [i for i, row in enumerate(rows) if row["source"] == source]
        missed = lost(needs, set(range(len(rows))) - set(left), left)
        right_total += sum(good[i] and i not in missed for i in left)
    print(f"{'one source left out: exact':34} {right_total / len(rows):11.1%}")


if __name__ == "__main__":
    main()
