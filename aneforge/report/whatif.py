"""What would be if: changes that help, other forms of the weights, and the cut that Core ML would likely make."""

from __future__ import annotations

from collections.abc import Mapping

from aneforge.advice import Advice
from aneforge.advice.stored import DEFAULT_STORAGES, FP16, StoredForm, stored_everywhere
from aneforge.report.programs import size_of
from aneforge.report.rows import ChangeRow, StoredRow, short
from aneforge.study.partition import Partition
from aneforge.study.study import Study
from aneforge.targets.names import chip_label, with_label

__all__ = ["change_rows", "likely_cut", "stored_rows"]

_LEAST = 0.001  # of a call; less is rounding
_COMPILED = 20_000  # operations or layers with other weights that are compiled in all, about


def change_rows(advice: Mapping[str, Advice], by_name: Mapping[str, int]) -> list[ChangeRow]:
    """Each change once, with the call after it on every chip: what helps most chips first."""
    rows: dict[tuple[str, str], ChangeRow] = {}
    for chip, listed in advice.items():
        for change in listed.changes:
            nodes = tuple(by_name[name] for name in change.nodes if name in by_name)
            about = (change.name, change.kind, change.cause, change.what, change.how, change.numbers, nodes)
            row = rows.setdefault((change.name, change.what), ChangeRow(*about, {}, {}))
            row.us[chip], row.saved[chip] = short(change.us), short(change.saved)
    return sorted(rows.values(), key=lambda row: (-len(row.us), -max(row.saved.values())))


def likely_cut(study: Study, by_name: Mapping[str, int]) -> list[ChangeRow]:
    """The model cut as the runtime would likely do it, where that is another cut than by the rules."""
    estimates, splits = study.estimates()[0], study.timed()
    placed = study.with_chips(list(estimates)).partitions("placement") if estimates else {}
    moved: dict[int, None] = {}
    us: dict[str, float] = {}
    saved: dict[str, float] = {}
    for name, split in placed.items():
        if not split.runs or split.device_of == splits[name].device_of:
            continue
        after, before = split.estimate(study.scope).us, estimates[name].us
        if abs(after / before - 1) >= _LEAST:
            us[name], saved[name] = short(after), short(1 - after / before)
            devices = splits[name].device_of
            elsewhere = (split.names[uid] for uid, device in split.device_of.items() if devices.get(uid) != device)
            moved |= dict.fromkeys(by_name[node] for node in elsewhere if node in by_name)
    if not us:
        return []
    runtime = study.runtime.label
    what = f"cut as {runtime} would likely do it: {len(moved):,} operations on another device than by the rules"
    how = f"placed by what was seen of {runtime}, compiled and estimated"
    numbers = "the host computes in float32"
    return [ChangeRow("likely cut", "cut", "crossings", what, how, numbers, tuple(moved), us, saved)]


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
