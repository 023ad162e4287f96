"""The page of what was seen with the kit, by chip and system, and what would be most worth running next."""

from __future__ import annotations

from aneforge.chips import store
from aneforge.reports.kit.experiments import KINDS, experiments
from aneforge.reports.kit.reach import CHIPS, bearing_on, is_telling, most_worth_running, resting, seen, weight

__all__ = ["kit_coverage"]
_NEXT = 8
_FIRST = 10


def first_unknowns() -> list[str]:
    choices = store.load("choices")["choices"]
    lines = ["| unknown | answers that rest on it | what | experiments |", "| --- | --- | --- | --- |"]
    for number in list(resting())[:_FIRST]:
        ids = ", ".join(entry.id for entry in bearing_on(number)) or "none"
        lines.append(f"| {number} | {resting()[number]} | {choices[number]['subject']} | {ids} |")
    return lines


def what_was_seen() -> list[str]:
    rows = [(number, entry) for number in resting() for entry in seen(number)]
    if not rows:
        return ["Nothing yet: no results of the kit are in the data. Yours would be the first."]
    lines = ["| chip | system | experiment | unknown | shows | source |", "| --- | --- | --- | --- | --- | --- |"]
    for number, row in sorted(rows, key=lambda pair: (pair[1]["chip"], pair[1]["os"], pair[0])):
        cells = (row["chip"], row["os"], row["experiment"], number, f"{row['shows']}: {row['reading']}", row["src"])
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def all_experiments() -> list[str]:
    lines = [
        f"| id | kind | asks | about | answers | {' | '.join(CHIPS)} |",
        f"| --- | --- | --- | --- | --- |{' --- |' * len(CHIPS)}",
    ]
    for entry in experiments().values():
        run = {row["chip"] for number in entry.about for row in seen(number) if row["experiment"] == entry.id}
        cells = ["seen" if chip in run else "decides" if is_telling(entry, chip) else "-" for chip in CHIPS]
        about = ", ".join(entry.about)
        lines.append(f"| {entry.id} | {entry.kind} | {entry.asks} | {about} | {weight(entry)} | {' | '.join(cells)} |")
    return lines


def kit_coverage() -> str:
    following = [f"- **{chip}:** {', '.join(row.id for row in most_worth_running(chip)[:_NEXT])}" for chip in CHIPS]
    parts = [
        "# What was seen with the kit",
        "",
        "`aneforge kit -o FOLDER` writes experiments for a Mac ([how](../guide/kit.md)). This page says which",
        "unknowns they bear on, on which chips they decide something, and where they were run. An answer is a row of",
        "the data or a line of a rule or formula that names the unknown.",
        "",
        "## The unknowns that most answers rest on",
        "",
        *first_unknowns(),
        "",
        "## What has been seen",
        "",
        *what_was_seen(),
        "",
        "## What is most worth running next",
        "",
        "By how many answers rest on what is not seen yet. `aneforge kit list --target CHIP` prints the predictions.",
        "",
        *following,
        "",
        "## All experiments",
        "",
        *[f"- *{kind}*: {words}" for kind, words in KINDS.items()],
        "",
        "*decides*: the hypotheses predict different things on that chip. *-*: they predict the same, or the",
        "question is about other chips. Programs are compiled on any Mac, for the targets that the question names.",
        "",
        *all_experiments(),
    ]
    return "\n".join(parts) + "\n"
