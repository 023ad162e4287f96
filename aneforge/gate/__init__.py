"""Rules that say whether the engine of a chip takes an operation through a route, and why."""

from __future__ import annotations

from aneforge.compiler.legal.judge import Finding, Verdict, judge
from aneforge.compiler.legal.query import ROUTES, Query, QueryError

__all__ = ["ROUTES", "Finding", "Query", "QueryError", "Verdict", "judge"]
