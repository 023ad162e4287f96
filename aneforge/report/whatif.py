"""What would be if: changes that help, other forms of the weights, and the cut that Core ML would likely make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aneforge.advice.ranking import Advice, PricedChange, likely_cut
from aneforge.advice.stored import DEFAULT_STORAGES, FP16, StoredForm, stored_everywhere
from aneforge.report.programs import size_of
from aneforge.report.rows import ChangeRow, StoredRow, short
from aneforge.study.partition import Partition
from aneforge.study.study import Study
from aneforge.targets.names import chip_label, with_label

_COMPILED = 20_000  # operations or layers with other weights that are compiled in all, about


def _change_rows(changes: Mapping[str, Iterable[PricedChange]], by_name: Mapping[str, int]) -> list[ChangeRow]:
    """Each change once, with the call after it on every chip: what helps most chips first."""
    rows: dict[tuple[str, str], ChangeRow] = {}
    for chip, listed in changes.items():
        for change in listed:
            nodes = tuple(by_name[name] for name in change.nodes if name in by_name)
            about = (change.name, change.kind, change.cause, change.what, change.how, change.numbers, nodes)
            row = rows.setdefault((change.name, change.what), ChangeRow(*about, {}, {}))
            row.us[chip], row.saved[chip] = short(change.us), short(change.saved)
    return sorted(rows.values(), key=lambda row: (-len(row.us), -max(row.saved.values())))


def helping_rows(study: Study, advice: Mapping[str, Advice], by_name: Mapping[str, int]) -> list[ChangeRow]:
    """The changes that help, and the cut that the runtime would likely make."""
    helping = _change_rows({chip: one.changes for chip, one in advice.items()}, by_name)
    return [*helping, *_change_rows({chip: [change] for chip, change in likely_cut(study).items()}, by_name)]


def stored_rows(study: Study) -> tuple[tuple[StoredRow, ...], str]:
    """Every usual form of the weights, whether or not it helps, and a sentence on those that were left out because the
    model is large. What the model has now comes first."""
    splits = study.timed()
    count = max(1, _COMPILED // max(1, size_of(splits)))
    tried, left_out = DEFAULT_STORAGES[:count], DEFAULT_STORAGES[count:]
    rows = tuple(_stored_row(form, splits) for form in stored_everywhere(study, tried))
    return rows, f"Left out, since the model is large: {', '.join(left_out)}." if left_out else ""


def _stored_row(form: StoredForm, splits: Mapping[str, Partition]) -> StoredRow:
    placed = {name: form.placement(name) for name in form.chips}
    reasons = {} if form.name == FP16 else {name: place.why for name, place in placed.items() if place.why}
    return StoredRow(
        name=form.name,
        what=form.what,
        layers=form.layers,
        bytes=form.stored_bytes,
        rounding=None if form.rounding is None else short(form.rounding),
        streaming={name: form.layers if form.name == FP16 else one.streaming for name, one in form.chips.items()},
        program_bytes={name: one.program_bytes for name, one in form.chips.items()},
        us={name: short(place.us) for name, place in placed.items() if place.us is not None},
        why={name: with_label(why, splits[name].target, chip_label(name)) for name, why in reasons.items()},
        evidence=dict(form.evidence),
    )
