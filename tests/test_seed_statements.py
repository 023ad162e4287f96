"""Every statement of the seed documents, by the call that shows it."""

from __future__ import annotations

from collections import Counter

import pytest
from seed_kit import SeedStatement, holds, statements


@pytest.mark.parametrize("statement", statements(), ids=lambda statement: statement.id)
def test_a_statement_holds(statement: SeedStatement):
    assert holds(statement), f"{statement.says}: {statement.call}"


def test_ids_are_unique():
    assert [name for name, count in Counter(each.id for each in statements()).items() if count > 1] == []
