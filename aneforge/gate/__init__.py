"""Rules that say whether the engine of a chip takes an operation through a route, and why."""

from __future__ import annotations

from aneforge.compiler.legal.findings import Finding, NumberFinding, PlacementFinding
from aneforge.compiler.legal.judge import Verdict, judge
from aneforge.compiler.legal.query import ROUTES, Query, QueryError

__all__ = ["ROUTES", "Finding", "NumberFinding", "PlacementFinding", "Query", "QueryError", "Verdict", "judge"]
