"""Damage files of every kind that a command reads: ``python tools/fuzz.py [--seconds 600] [--only NAME] [--seed N]``.

Prints a line for each kind: files, commands, refusals, different answers, findings. Files that were treated badly are
written to ``--out`` with the command that did it. Exit status 1 where there is one.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from campaign_counts import record
from fuzzing.campaign import Outcome, campaign, prepare
from fuzzing.readers import READERS

from aneforge import text


def _work(order: tuple[int, int, float]) -> Outcome:
    number, seed, seconds = order
    prepare()
    return campaign(READERS[number], seed, sys.maxsize, seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description="Damage files of every kind that a command reads.")
    parser.add_argument("--seconds", type=float, default=600, help="for all kinds together (default: 600)")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--only", action="append", help="a kind of file, as the table names it; repeatable")
    parser.add_argument("--seed", type=int, default=0, help="another search (default: 0)")
    parser.add_argument("--record", action="store_true", help="keep the counts for docs/reference/reliability.md")
    parser.add_argument("--out", type=Path, default=Path("fuzz-findings"), help="where bad files are kept")
    chosen = parser.parse_args()
    known = [number for number, reader in enumerate(READERS) if not reader.needs or find_spec(reader.needs)]
    numbers = [number for number in known if not chosen.only or READERS[number].name in chosen.only]
    if not numbers:
        parser.error(f"--only: choose of: {', '.join(reader.name for reader in READERS)}")
    share = chosen.seconds * chosen.workers / len(numbers)
    outcomes: list[Outcome] = []
    with multiprocessing.get_context("spawn").Pool(chosen.workers, maxtasksperchild=1) as pool:
        for outcome in pool.imap_unordered(_work, [(number, chosen.seed, share) for number in numbers]):
            outcomes.append(outcome)
            print(
                f"{outcome.reader}: {outcome.commands:,} commands, {len(outcome.findings)} findings", file=sys.stderr
            )
    rows = [
        (one.reader, f"{one.files:,}", f"{one.commands:,}", f"{one.refused:,}", one.answers, len(one.findings))
        for one in sorted(outcomes, key=lambda one: one.reader)
    ]
    print(text.columns(("kind of file", "files", "commands", "refused", "answers", "findings"), rows))
    total = sum(one.commands for one in outcomes), sum(len(one.findings) for one in outcomes)
    print(f"{total[0]:,} commands on {sum(one.files for one in outcomes):,} files, {total[1]} findings")
    for one in outcomes:
        for finding in one.findings:
            chosen.out.mkdir(exist_ok=True)
            name = f"{one.reader.replace(' ', '-')}-{hashlib.blake2b(finding.data, digest_size=4).hexdigest()}"
            (chosen.out / name).write_bytes(finding.data)
            print(f"{chosen.out / name}: aneforge {finding.command}: {finding.what}")
    if chosen.record:
        kinds = [
            {
                "kind": one.reader,
                "files": one.files,
                "commands": one.commands,
                "refused": one.refused,
                "answers": one.answers,
            }
            for one in sorted(outcomes, key=lambda one: one.reader)
        ]
        record("fuzz", {"seconds": chosen.seconds, "seed": chosen.seed, "findings": total[1], "kinds": kinds})
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
