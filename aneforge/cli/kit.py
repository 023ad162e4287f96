"""``aneforge kit``: the experiments as a folder, as a list, and what their results change."""

from __future__ import annotations

from aneforge import text
from aneforge.chips.names import chip_label, chip_list, one_chip
from aneforge.cli import say
from aneforge.cli.notes import working
from aneforge.reports.kit.apply import applied, write_applied
from aneforge.reports.kit.experiments import Experiment, chosen
from aneforge.reports.kit.judge import judged
from aneforge.reports.kit.predict import KitSetting, Prediction, first_apart, predictions
from aneforge.reports.kit.reach import resting, weight
from aneforge.reports.kit.results import read_results
from aneforge.reports.kit.write import write_kit


def write(out: str, chips: str, about: str, overwrite: bool, as_json: bool) -> None:
    """Write the folder."""
    labels = [chip_label(name) for name in chip_list(chips)]
    with working(f"writing {out}") as progress:
        kit = write_kit(out, chosen(about.split(",")), labels, overwrite, progress)
    print(text.as_json(kit.to_json()) if as_json else kit)


def show(target: str | None, about: str, as_json: bool) -> None:
    """Print the experiments, and what their hypotheses predict on one chip."""
    entries = chosen(about.split(","))
    setting = None if target is None else KitSetting(chip_label(one_chip(target)))
    said = {entry.id: [] if setting is None else predictions(entry, setting) for entry in entries}
    if as_json:
        print(text.as_json([_record(entry, said[entry.id]) for entry in entries]))
        return
    rows = [(entry.id, entry.kind, ", ".join(entry.about), str(weight(entry)), entry.asks) for entry in entries]
    print(text.columns(("id", "kind", "about", "answers", "asks"), rows, fit=True))
    for entry in entries:
        if said[entry.id] and setting is not None:
            print(f"\n{entry.id} on {setting.chip}:")
            print("\n".join(_lines(said[entry.id])))


def _record(entry: Experiment, said: list[Prediction]) -> dict[str, object]:
    record = {"id": entry.id, "name": entry.name, "kind": entry.kind, "about": list(entry.about), "asks": entry.asks}
    resting_on = {number: resting()[number] for number in entry.about if number in resting()}
    return {**record, "answers": resting_on, "predictions": [row.to_json() for row in said]}


def _lines(said: list[Prediction]) -> list[str]:
    """Every hypothesis with what it predicts; those that say the same have the same letter."""
    letters: dict[str, str] = {}
    place = first_apart(said)
    lines = []
    for number, row in enumerate(said, 1):
        if row.cases is None:
            lines.append(f"  {number}. {row.hypothesis.name}: nothing on this chip")
            continue
        letter = letters.setdefault(row.key, chr(ord("a") + len(letters)))
        lines.append(f"  {number}. {row.hypothesis.name}: {letter}, {row.in_words(place)}")
    return lines


def apply(file: str, checkout: str, source: str, write_it: bool, as_json: bool) -> int:
    """Show what results change, or change it."""
    with working(f"reading {file}"):
        change = applied(judged(read_results(file)), source, checkout)
    print(text.as_json(change.to_json()) if as_json else change)
    if not write_it or not change.diff:
        return 1 if change.diff else 0
    write_applied(change, checkout)
    say.note(f"wrote {checkout}: read git diff, run what is listed, then commit")
    return 0
