"""The page of accuracy and coverage: every figure in one place, with the command that prints it.

What can be worked out here is worked out. Figures that need measurements or packages from elsewhere are read from the
page that has them, so that no figure is written twice.
"""

from __future__ import annotations

import re
from pathlib import Path

import aneforge as af
from aneforge.compiler.legal.rules import RULES
from docpages.containers import count_forms

__all__ = ["accuracy", "figure"]

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
MACS = "m1..m6"


def figure(page: str, pattern: str) -> str:
    """What a pattern finds in a page of the reference; a page without it has changed, and this one has to follow."""
    found = re.search(pattern, (REFERENCE / page).read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise LookupError(f"{page}: nothing matches {pattern}; change docpages/accuracy.py with the page")
    return found[1].strip()


def _cells(page: str, first: str) -> list[str]:
    """The cells of the row of a table that begins with a cell."""
    return [cell.strip() for cell in figure(page, rf"^\| {re.escape(first)} \|(.*)\|$").split("|")]


def accuracy() -> str:
    return "\n".join([*_HEAD, *_verdicts(), *_times(), *_numbers(), *_coverage(), *_networks()])


_HEAD = [
    "# How good are the answers?",
    "",
    "Each kind of answer is compared with what other people measured on real chips. This page has the main figures;",
    "the linked pages have the rest. We ran nothing on Apple hardware ourselves. FACTS, VERDICTS.json and MORE.json",
    "in the commands are published measurements, which are not part of this repository.",
    "",
]


def _verdicts() -> list[str]:
    lines = [
        "## Does it run?",
        "",
        "Measured verdicts on real chips, answered by aneforge from their description. *Left out* forgets what only",
        "the source of a row, or all its author has stated: how new ops will fare. *Flagged*: wrong results for which",
        "the answer is then not a plain yes.",
        "",
        "| measured verdicts | rows | exact | left out | exact | refusals caught | wrong results flagged |",
        "| --- | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for name in ("silicon/verdicts_train.json", "second/verdicts.json", "third/verdicts.json", "all together"):
        whole = _cells("verdict-accuracy.md", name)
        for what in ("source", "publisher"):
            left = _cells("verdict-accuracy.md", f"{name} | {what}")
            lines.append(f"| {name} | {whole[0]} | {whole[2]} | {what} | {left[0]} | {left[1]} | {left[3]} |")
    return [
        *lines,
        "",
        "Printed by `python bench/verdicts.py VERDICTS.json MORE.json`, or for one file by",
        "`aneforge measure gate FILE`; more in [how good the verdicts are](verdict-accuracy.md).",
        f"{len(RULES)} [rules](rules.md) decide, each with its evidence.",
        "",
    ]


def _times() -> list[str]:
    rows = {
        "networks, their family left out": "all networks of one family: networks",
        "networks, their source left out": "all rows of one source: networks",
        "layers, their source left out": "all rows of one source: layers",
        "layers, their machine left out": "all rows of one machine: layers",
        "networks, their chip left out": "all rows of one chip, which then takes its neighbour's factors: networks",
    }
    lines = [
        "## How long does it take?",
        "",
        "Estimates against measured times that the fit did not see. The interval should hold eight rows of ten.",
        "",
        "| measured times | rows | median error % | 90th percentile % | in the interval % |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for shown, row in rows.items():
        count, _, median, _, most, _, inside = _cells("cost-accuracy.md", row)
        lines.append(f"| {shown} | {count} | {median} | {most} | {inside} |")
    return [
        *lines,
        "",
        "Printed by `python bench/cost.py FACTS`, or for one file by `aneforge measure cost FILE`; more in",
        "[how good the estimates are](cost-accuracy.md).",
        "",
    ]


def _numbers() -> list[str]:
    lines = [
        "## Are the numbers right?",
        "",
        "Small programs whose results people read off real chips, simulated. A probe counts for a chip if one of its",
        "generation was measured; the others are simulated from the same rules, and nobody has looked.",
        "",
        "| chip | measured probes | hold | not measured |",
        "| --- | ---: | ---: | ---: |",
    ]
    for chip, probes in af.probe(MACS).items():
        known = [reading for reading in probes.readings if reading.holds is not None]
        right = sum(1 for reading in known if reading.holds)
        lines.append(f"| {chip.upper()} | {len(known)} | {right} | {len(probes.readings) - len(known)} |")
    return [
        *lines,
        "",
        f"Printed by `aneforge probe --target {MACS}`. Every measured fact that a simulator can express is a test in",
        "`tests/test_silicon_numerics.py`; those that do not hold yet are expected failures there, with reasons.",
        "",
    ]


def _coverage() -> list[str]:
    written, carried = count_forms()
    coreml, torch = (figure(page, r"^(\d+ ops: .*)$").rstrip(".") for page in ("coreml.md", "torch.md"))
    passed, host, unsupported, wrong, tests = _cells("onnx.md", "node")
    return [
        "## What is covered?",
        "",
        "| what | covered | printed by |",
        "| --- | --- | --- |",
        f"| [ONNX](onnx.md): the standard's tests of single ops | {passed} as ops of the graph, {host} with the host, "
        f"{unsupported} refused, {wrong} wrong, of {tests} | `python bench/onnx_coverage.py` |",
        f"| [Core ML](coreml.md): ops | {coreml} | `make docs` |",
        f"| [PyTorch](torch.md): ops | {torch} | `make docs-models` |",
        f"| [register forms](containers.md) of compiled programs | {written} kinds of work as registers, "
        f"{carried} carried as text | `make docs` |",
        "",
    ]


def _networks() -> list[str]:
    return [
        "## Whole networks",
        "",
        figure("networks.md", r"^(\d+ networks in \d+ files: .*)$"),
        "",
        "Printed by `python bench/exported.py FOLDER`; each is in [networks of other libraries](networks.md).",
        "",
    ]
