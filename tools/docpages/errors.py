"""The page of messages: what is printed when a model meets the engine, why, and what helps."""

from __future__ import annotations

from aneforge.chips.messages import Cause, CauseKind, Message, cause_kinds, messages

__all__ = ["errors"]


def errors() -> str:
    """An index by code and by stage, then every entry, then what shows each kind of cause in a model."""
    entries = list(messages().values())
    parts = [
        "# Messages and their causes",
        "",
        f"**What does my log mean?** These are {len(entries)} messages and symptoms that people met when a model met",
        "the engine, with the causes that they found, the most frequent or the surest first, and what helped.",
        "`aneforge explain --file FILE` finds them in a log, and `--model MODEL --target CHIP` ranks the causes by",
        "what the model shows ([my log says ...](../guide/errors.md)).",
        "",
        "The sources behind an entry are threads and notes in repositories. *measured* means that the cause was",
        "reported with the message; *inferred* is a reading of it. The words in brackets behind a cause are the",
        "[kinds of causes](#what-shows-a-cause-in-a-model) that a check of a model looks for.",
        "",
        "## By code",
        "",
        "| code | entries |",
        "| --- | --- |",
        *(f"| `{code}` | {', '.join(map(_link, named))} |" for code, named in _by_code(entries).items()),
    ]
    for stage, named in _by_stage(entries).items():
        parts += ["", f"## At {stage}"]
        for entry in named:
            parts += ["", *_entry(entry)]
    parts += [
        "",
        "## What shows a cause in a model",
        "",
        "A finding of the check fits best; a structure that is there without a finding comes behind it (U260).",
        "",
        "| kind | what it is | rules and patterns | structure | commands |",
        "| --- | --- | --- | --- | --- |",
        *map(_kind, cause_kinds().values()),
    ]
    return "\n".join(parts) + "\n"


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _link(entry: Message) -> str:
    return f"[{entry.id}](#{entry.id.lower()})"


def _by_code(entries: list[Message]) -> dict[str, list[Message]]:
    codes = sorted({code for entry in entries for code in entry.codes}, key=_order)
    return {code: [entry for entry in entries if code in entry.codes] for code in codes}


def _order(code: str) -> tuple[bool, bool, int, str]:
    number = int(code, 0) if code.lstrip("-").isdigit() or code.startswith("0x") else 0
    return not code.lstrip("-").isdigit(), not code.startswith("0x"), number, code


def _by_stage(entries: list[Message]) -> dict[str, list[Message]]:
    stages: dict[str, list[Message]] = {}
    for entry in entries:
        stages.setdefault(entry.stage, []).append(entry)
    return stages


def _entry(entry: Message) -> list[str]:
    what = "a symptom" if entry.is_symptom else "a message"
    codes = f", code {', '.join(f'`{code}`' for code in entry.codes)}" if entry.codes else ""
    met = [entry.runtime, entry.chips or "chips not stated", entry.systems or "system not stated"]
    lines = [f"### {entry.id}", "", f"> {_plain(entry.text)}", "", f"*{what}*{codes}; {_plain('; '.join(met))}.", ""]
    lines += [f"{cause.rank}. {_plain(cause.text)}{_shown_by(cause)}" for cause in entry.causes]
    lines += ["", *(f"- {_plain(cure)}" for cure in entry.cures)]
    if entry.note:
        lines += ["", f"Note: {_plain(entry.note)}."]
    return [*lines, "", f"Sources: {_plain(', '.join(entry.threads))} ({entry.confidence})."]


def _shown_by(cause: Cause) -> str:
    if cause.stands_for:
        return f" (see [{cause.stands_for}](#{cause.stands_for.lower()}))"
    names = ", ".join(f"`{kind.name}`" for kind in cause.kinds)
    return f" ({names})" if names else ""


def _kind(kind: CauseKind) -> str:
    rules = "every refusal" if kind.any_refusal else ", ".join(f"`{name}`" for name in (*kind.rules, *kind.patterns))
    commands = ", ".join(f"`{command}`" for command in kind.commands)
    cells = [f"`{kind.name}`", kind.about, rules, kind.structure, commands]
    return f"| {' | '.join(_plain(cell) for cell in cells)} |"
