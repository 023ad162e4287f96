"""How the gate does on measured verdicts, and how it would do on sources that it has not seen. Prints figures only.

``python bench/verdicts.py VERDICTS.json [MORE.json ...] [--misses]`` takes files in the schema of verdicts_train.json;
``--markdown`` prints the page of the documentation.
First it answers every row from what the row describes and compares. Then it leaves out one source at a time: it
forgets every record of ``gate_limits.json`` (and every answer of the two sweeps of op names) that only this source
states, numbers and all, and answers the rows of the source with what is left. A record that a document or another
source states too stays. The same is done for publishers, which leaves out everything that one author or repository
has published.

The patterns and the reading of the rows' sentences stay. They were written with all rows in view, so the figures say
how much of the gate's knowledge has more than one witness; they are not those of a blind test.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

from aneforge.chips import global_limit, store
from aneforge.compiler.legal.rules import status
from aneforge.engine.native import layer_type
from aneforge.errors import AneforgeError
from aneforge.study.agreement import evaluate, verdict

Row = Mapping[str, Any]

KEYS: dict[str, tuple[str, ...]] = {
    "m6study-opdispatch": ("M6.disp",),
    "m6study-arch": ("M6.arr", "M6.hwx"),
    "m6study-kshape": ("M6.hwx",),
    "m6study-targets": ("M6.tgt",),
    "m6study-depth": ("M6.depth",),
    "m6study-weights": ("M6.arr",),
    "aneforge-sweep": ("AF.sweep",),
    "aneforge-tests": ("AF.tests",),
    "aneforge-capabilities": ("AF.caps",),
    "aneforge-docs": ("AF.docs", "AF.quirks", "AF.capdoc"),
    "aneforge-op-catalog": ("AF.opcat",),
    **{f"aneforge-issue{number}": (f"AF.{number}",) for number in (149, 162)},
    **{f"aneforge-pr{number}": (f"AF.{number}",) for number in (116, 158, 159, 201)},
    **{f"ane-guide-ch{number}": (f"G{number:02}",) for number in (4, 11, 12, 14, 17, 19)},
    **{f"ane-guide-app{letter}": (f"G{letter}",) for letter in "ABF"},
    "field-guide-m3max": ("FG",),
    "maderix-report": ("MX",),
    "maderix#6": ("MX.6",),
    "coreai-zoo-granite": ("CAZ",),
    "hollance-docs": ("HOLD",),
    "orion-m4max": ("ORI",),
    "ane-scope": ("SCOPE",),
    "Vx#435": ("VX",),
    "Vx#437": ("VX",),
    "FluidAudio#679": ("FA.679", "FA679"),
    "FluidAudio#121": ("FA.121",),
    "mobius#61": ("MOB.61",),
    "mobius#67": ("MOB.67",),
    "rf-detr#1495": ("RFD.1495",),
    **{f"coremltools#{number}": (f"CT.{number}",) for number in (2450, 2510, 2631, 2687)},
    **{f"coreai-torch#{number}": (f"CAI.{number}", "CAT") for number in (51, 68, 112, 116)},
    "coreai-models#205": ("CAM.205", "CAM"),
    **{f"ANEForge#{number}": (f"AFP.{number}",) for number in (45, 51, 254)},
}
"""What the data files call the sources of rows; a source that is not listed has the same name there."""

PUBLISHERS: dict[str, tuple[str, ...]] = {
    "751K": ("m6study", "timed:m6study", "M6.", "MON"),
    "ANEForge": ("aneforge-", "timed:aneforge", "ANEForge#", "AF.", "AFP."),
    "ANE guide": ("ane-guide", "timed:ane-guide", "G0", "G1", "G2", "G3", "GA", "GB", "GC", "GF"),
    "cadamcat": ("LA.",),
    "FluidInference": ("FluidAudio#", "mobius#", "FA.", "FA679", "MOB"),
    "john-rocky": ("coreai-zoo", "CAZ", "ZOO"),
    "maderix": ("maderix", "timed:maderix", "MX"),
    "MidasMulli": ("AP", "ACP", "BF."),
    "Vx": ("Vx#", "VX"),
}
"""How the names of sources begin, of rows and of records, for publishers with several. The seed chapters are no rows'
source: what they state stays."""

OURS = frozenset(("GATE", "T2.np"))
"""Readings of this project, which witness nothing."""


def keys_of(source: str) -> frozenset[str]:
    return frozenset((source, *KEYS.get(source, ())))


def publisher_of(source: str) -> str:
    return next((name for name, starts in PUBLISHERS.items() if source.startswith(starts)), source)


def witnesses(record: Row) -> frozenset[str]:
    """Who states a record. Limits of a chip's own tables are documents and never forgotten."""
    if "global" in record:
        return frozenset(global_limit(record["global"]).source)
    if "fact" in record or ("limit" in record and "basis" not in record):
        return frozenset(("tables",))
    return frozenset((*record.get("src", ()), *record.get("basis", ()))) - OURS


@contextmanager
def forgotten(keys: frozenset[str]) -> Iterator[int]:
    """The gate without what only these sources state; gives the number of records that are gone."""
    document = store.load("gate_limits")
    whole = {section: document[section] for section in ("ops", "rules")}
    count = 0
    for section, records in whole.items():
        document[section] = [record for record in records if not witnesses(record) <= keys]
        count += len(records) - len(document[section])
    validators = store.load("validators")
    checks = validators["validators"]
    validators["validators"] = [
        {**entry, "checks": [check for check in entry["checks"] if not _stated_by(entry, check) <= keys]}
        for entry in checks
    ]
    sweeps = {"_sweep": "AF.sweep", "_segmenter": "M6.disp"}
    gone = [name for name, key in sweeps.items() if key in keys]
    patches: list[Any] = [mock.patch.object(status, name, return_value=None) for name in gone]
    rows = tuple(row for row in status.ROWS if row.__name__ not in gone)
    patches.append(mock.patch.object(status, "ROWS", rows))
    try:
        for patch in patches:
            patch.start()
        read_again()
        yield count
    finally:
        for patch in patches:
            patch.stop()
        document.update(whole)
        validators["validators"] = checks
        read_again()


def _stated_by(entry: Row, check: Row) -> frozenset[str]:
    """Who states a check of a validator: its own sources, or those of its layer."""
    return witnesses({"src": layer_type(entry["layer"]).evidence.source, **check})


def read_again() -> None:
    """Let the rules read the data again."""
    legal = ("rules.base", "rules.status", "rules.validators", "judge", "check", "programs")
    for name in ("aneforge.chips.ops", *(f"aneforge.compiler.legal.{name}" for name in legal)):
        for member in vars(import_module(name)).values():
            if hasattr(member, "cache_clear"):
                member.cache_clear()


_REFUSED, _RUNS = ("reject", "cpu"), ("accept", "decompose")


@dataclass
class LeftOut:
    """The answers to rows whose own source was left out."""

    rows: int = 0
    right: int = 0
    wrong_results: int = 0
    flagged: int = 0
    """Wrong results that were answered with anything but accept."""
    refusals: int = 0
    caught: int = 0
    """Rejections and ops on the CPU that were answered so."""
    acceptances: int = 0
    kept: int = 0
    """What runs and was answered so."""
    misses: list[tuple[str, str, str, str]] = field(default_factory=list)
    """Source, op, measured and answered."""

    def add(self, row: Row, answer: str) -> None:
        measured = row["verdict"]
        self.rows += 1
        self.right += answer == measured
        self.wrong_results += measured == "wrong_result"
        self.flagged += measured == "wrong_result" and answer != "accept"
        self.refusals += measured in _REFUSED
        self.caught += measured in _REFUSED and answer in _REFUSED
        self.acceptances += measured in _RUNS
        self.kept += measured in _RUNS and answer in _RUNS
        if answer != measured:
            self.misses.append((row["source"], row["op"], measured, answer))

    @property
    def shares(self) -> list[tuple[float, int]]:
        """Of all rows, of what was refused, of what runs and of wrong results: the share that was told, and of how
        many."""
        parts = (
            (self.right, self.rows),
            (self.caught, self.refusals),
            (self.kept, self.acceptances),
            (self.flagged, self.wrong_results),
        )
        return [(count / rows if rows else 0.0, rows) for count, rows in parts]

    def __str__(self) -> str:
        names = ("exact", "refusals caught", "acceptances right", "wrong results flagged")
        told = [f"{name} {share:.1%} of {rows}" for name, (share, rows) in zip(names, self.shares, strict=True)]
        return ", ".join(told)


def leave_out(rows: Sequence[Row], by_publisher: bool = False) -> LeftOut:
    """Answer every row without what its own source, or its publisher, alone has stated."""
    parts: dict[str, list[Row]] = {}
    for row in rows:
        name = row["source"]
        parts.setdefault(publisher_of(name) if by_publisher else name, []).append(row)
    known = {
        key
        for section in ("ops", "rules")
        for record in store.load("gate_limits")[section]
        for key in witnesses(record)
    }
    result = LeftOut()
    for name, members in parts.items():
        keys = frozenset(key for row in members for key in keys_of(row["source"]))
        if by_publisher:
            keys |= {key for key in known if publisher_of(key) == name}
        with forgotten(keys):
            for row in members:
                result.add(row, str(verdict(row)))
    return result


def rows_of(path: Path) -> list[Row]:
    """The rows of a file that are not of low confidence."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        sys.exit(f"{path}: cannot be read ({error.strerror}). Pass a file of measured verdicts.")
    except ValueError as error:
        sys.exit(f"{path}: not JSON ({error}). Pass a file of measured verdicts.")
    rows = document.get("rows") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "verdict" in row for row in rows):
        sys.exit(
            f"{path}: has no list 'rows' with a verdict in each. Pass a file in the schema of verdicts_train.json."
        )
    return [row for row in rows if row.get("confidence") != "low"]


def show(title: str, rows: Sequence[Row], misses: bool) -> None:
    sources = {row["source"] for row in rows}
    print(f"\n{title}: {len(rows)} rows of {len(sources)} sources")
    print("\n".join(str(evaluate(rows)).splitlines()[1:5]))
    by_source, by_publisher = leave_out(rows), leave_out(rows, by_publisher=True)
    print(f"each source left out     {by_source}")
    print(f"each publisher left out  {by_publisher}")
    if misses:
        for source, op, measured, answered in by_source.misses:
            print(f"  {source}: {op} was {measured}, answered {answered}")


_COMMAND = "python bench/verdicts.py VERDICTS.json MORE.json --markdown"
_PAGE = f"""<!-- Generated by `{_COMMAND}`: change its source, not this page. -->

# How good the verdicts are

Public collections hold verdicts of many ops and programs that were measured on real chips. Each is answered from its
description alone and compared. Rows of low confidence are left out.

- *Exact*: the same of five words (accept, decompose, reject, wrong result, CPU). *Runs or not*: the same side of
  that line.
- *Boundary pairs*: two rows of one op, chip and route with different verdicts, both answered right.
- *Source left out*: what only this source states was forgotten, numbers and all, and its rows were answered with what
  is left. *Publisher left out*: the same for everything of one author or repository. *Refusals caught* counts
  rejections and ops on the CPU that are told all the same, *acceptances right* what runs and is said to, *wrong
  results flagged* wrong numbers with an answer other than accept.
"""
_AFTER = """
The first table is agreement, not a forecast: the rules were written with these rows in view. The second one says how
much of the knowledge has more than one witness. Patterns of ops stay there too, so a blind test would do worse.
`--misses` lists the rows that are missed without their source.
"""


def page(parts: Mapping[str, Sequence[Row]]) -> str:
    """docs/reference/verdict-accuracy.md: every file as a row, then the chips of all of them."""
    lines = [_PAGE, "| file | rows | sources | exact | runs or not | boundary pairs | wrong results announced |"]
    lines.append("| --- |" + " ---: |" * 6)
    together = [row for rows in parts.values() for row in rows]
    whole_of = {**parts, "all together": together} if len(parts) > 1 else parts
    for title, rows in whole_of.items():
        whole = evaluate(rows)
        figures = (
            len(rows),
            len({row["source"] for row in rows}),
            *(f"{share:.1%}" for share in (whole.exact, whole.runs)),
            f"{whole.boundary:.1%} of {whole.boundary_pairs}",
            f"{whole.wrong_results:.1%} of {whole.wrong_result_rows}",
        )
        lines.append(f"| {title} | {' | '.join(map(str, figures))} |")
    lines += ["", "| file | left out | exact | refusals caught | acceptances right | wrong results flagged |"]
    lines.append("| --- | --- |" + " ---: |" * 4)
    for title, rows in whole_of.items():
        for what, result in (("source", leave_out(rows)), ("publisher", leave_out(rows, by_publisher=True))):
            shares = [f"{share:.1%} of {count}" if count else "-" for share, count in result.shares]
            lines.append(f"| {title} | {what} | {' | '.join(shares)} |")
    lines += [_AFTER, "## By chip", "", "| chip | rows | exact |", "| --- | ---: | ---: |"]
    chips = evaluate(together).parts["chip"]
    for chip, (right, count) in sorted(chips.items(), key=lambda entry: (-entry[1][1], entry[0])):
        lines.append(f"| {chip} | {count} | {right / count:.1%} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="VERDICTS.json", help="measured verdicts")
    parser.add_argument("--misses", action="store_true", help="list the rows that are missed without their source")
    parser.add_argument("--markdown", action="store_true", help="print docs/reference/verdict-accuracy.md")
    options = parser.parse_args()
    files = {path: rows_of(path) for path in options.files}
    try:
        if options.markdown:
            print(page({f"{path.parent.name}/{path.name}": rows for path, rows in files.items()}))
            return
        for path, rows in files.items():
            show(path.name, rows, options.misses)
        if len(files) > 1:
            show("all files", [row for rows in files.values() for row in rows], False)
    except AneforgeError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
