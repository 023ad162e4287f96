"""The rules that are not functions of a query: what the check of a graph and the passes of phase 2 refuse by name.

They are listed here so that the documentation has them all; a test compares this list with the code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RaisedRule:
    """A rule id, who raises it, and what it says."""

    id: str
    raised_by: str
    """``check`` for a rule about an op's name or place, or the pass of phase 2. Losses of numbers are listed with the
    range analysis (``aneforge.numerics.losses``)."""
    about: str
    elsewhere: str = ""
    """The key of ``UNREACHED`` where no graph reaches it."""
    stage: str = "validator"
    """The layer that answers, one of ``STAGES``; of rules about names, the answer says it."""


RAISED = (
    RaisedRule("host-op", "check", "An op that only the host runs, or one on integers.", stage="frontend"),
    RaisedRule(
        "target-name", "check", "A target name that the compiler knows but no build constructs.", stage="frontend"
    ),
    RaisedRule("mil-floor", "check", "Below H13 no model-language program compiles.", stage="frontend"),
    RaisedRule("op-route", "check", "The route has no such op on this chip.", stage="frontend"),
    RaisedRule("op-record", "check", "A measured answer about one op.", "rewrites"),
    RaisedRule(
        "sweep", "check", "The op failed the sweep of the whole vocabulary on an M5.", "rewrites", "code generation"
    ),
    RaisedRule("segmenter", "check", "Core ML's planner does not call the op eligible.", "Core ML placement"),
    RaisedRule("unknown-op", "check", "No operation of this name is known.", "op names", "frontend"),
    RaisedRule(
        "weight-fold", "check", "A weight encoding that the chip expands to fp16.", "rewrites", "code generation"
    ),
    RaisedRule("minimum-family", "check-floors", "A backend op below the family that it starts at.", stage="frontend"),
    RaisedRule("extent", "check-extents", "An axis of a backend op above the chip's cap."),
    RaisedRule("contraction-extent", "check-extents", "A contraction above the chip's cap.", "backend text"),
    RaisedRule(
        "program-size",
        "check-program-size",
        "More weights in one program than were seen to load (C52).",
        stage="code generation",
    ),
    RaisedRule("kernel-memory", "split-kernel-memory", "One output channel's kernel is larger than kernel memory."),
    RaisedRule("resize-unmapped", "resize-strategies", "A resize that no strategy fits, without a texture engine."),
    RaisedRule("gather-envelope", "gather-gate", "A gather outside what software gathers take.", "backend text"),
    RaisedRule(
        "legacy-reshape",
        "legacy-forms",
        "A reshape that is not a flatten, on the two oldest families.",
        stage="code generation",
    ),
    RaisedRule(
        "legacy-broadcast",
        "legacy-forms",
        "A broadcast of other types than fp16 there.",
        "backend text",
        "code generation",
    ),
    RaisedRule(
        "legacy-divide",
        "legacy-forms",
        "A divisor that is not stored, or has no fp16 reciprocal, there.",
        stage="code generation",
    ),
)


def raised_stage(rule: str) -> str:
    """The layer that answers by a rule of this list."""
    return next((raised.stage for raised in RAISED if raised.id == rule), "validator")
