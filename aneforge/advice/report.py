"""The changes that would help, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aneforge.advice.change import LEAST_GAIN, Change
from aneforge.advice.ranking import Advice
from aneforge.cost.constants import basis_of
from aneforge.output.grouped import WIDTH, grouped, short, some, wrapped
from aneforge.output.text import plural

__all__ = ["changes_text"]


_CAUSES = {
    "weights": "against reading weights:",
    "calls": "against starting calls:",
    "crossings": "against cuts and changes of device:",
    "layers": "against the time of layers:",
}


def _label(name: str) -> str:
    """The product whose times a name stands for."""
    return basis_of(name).label


def changes_text(advice: Mapping[str, Advice]) -> str:
    """The changes that help by what they work against, each once with the chips that it helps."""
    told = [(name, change) for name, one in advice.items() for change in one.changes]
    if not told:
        return wrapped(f"what would help: {_nothing(advice)}")
    lines = ["what would help (the whole call before and after, by estimate):"]
    by_cause = grouped(sorted(told, key=lambda pair: -pair[1].saved), lambda pair: pair[1].cause)
    for cause, pairs in by_cause.items():
        lines.append(f"  {_CAUSES[cause]}")
        note = ""
        for alike in grouped(pairs, lambda pair: pair[1].name).values():
            before, note = note, f"{alike[0][1].how}; {alike[0][1].numbers}"
            lines += _change_lines(sorted(alike, key=lambda pair: list(advice).index(pair[0])))
            lines += [wrapped(note, "      ")] if note != before else []
    helped = {name for name, _ in told}
    left = {name: one for name, one in advice.items() if name not in helped}
    if left:
        lines.append(wrapped(f"{', '.join(map(_label, left))}: {_nothing(left)}", "  "))
    return "\n".join(lines)


def _change_lines(pairs: Sequence[tuple[str, Change]]) -> list[str]:
    """One change on the chips that it helps. Where it is about other places on each, the chips say how many."""
    first = pairs[0][1]
    same = all(change.what == first.what for _, change in pairs)
    places = f" ({some([short(node) for node in first.nodes], 2)})" if first.nodes and same else ""
    head = wrapped(f"{first.what if same else first.name}{places}", "    ")
    by_figures = grouped(pairs, lambda pair: _figures(pair[1], not same))  # chips that share constants say the same
    items = [f"{', '.join(_label(name) for name, _ in alike)} {figures}" for figures, alike in by_figures.items()]
    return [head, *_packed(items, "      ")]


def _packed(items: Sequence[str], indent: str) -> list[str]:
    """Items in as few lines as hold them, none of them broken."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + 2 + len(item) <= WIDTH:
            lines[-1] += f"; {item}"
        else:
            lines.append(indent + item)
    return lines


def _nothing(advice: Mapping[str, Advice]) -> str:
    weighed = max(one.weighed for one in advice.values())
    left_out = max(one.left_out for one in advice.values())
    if not weighed:
        return "no change that is known here applies"
    count = weighed - left_out
    none = "the change that applies does not save" if count == 1 else f"none of {count} changes that apply saves"
    more = f"; {left_out} more were not worked out, because the model is large" if left_out else ""
    return f"nothing; {none} {LEAST_GAIN:.0%} or more{more}"


def _figures(change: Change, count: bool) -> str:
    low, high = change.interval
    places = f" at {plural(len(change.nodes), 'node')}" if count else ""
    return f"{change.before_us:,.0f} -> {change.us:,.0f} us ({low:,.0f} to {high:,.0f}){places}"
