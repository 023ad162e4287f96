"""Tables as CSV: nothing in a cell is a formula, and every text is read back as it was."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aneforge.reports.tables import csv_text, guarded, unguarded


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-2", "@sum", "\tx", "\rx", "'=1", "''=1"])
def test_what_a_spreadsheet_would_run_is_quoted(text):
    assert guarded(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "net.onnx", "'quoted'", "a=b", "1-2"])
def test_other_text_stays(text):
    assert guarded(text) == text


@given(st.text(alphabet="'=+-@\t\rax,\"\n", max_size=6))
def test_a_table_is_read_back(text):
    assert unguarded(guarded(text)) == text
    head, row = csv.reader(io.StringIO(csv_text(["name", "us"], [[text, 0.1]]), newline=""))
    assert head == ["name", "us"]
    assert (unguarded(row[0]), float(row[1])) == (text, 0.1)


def test_an_unknown_number_is_empty():
    assert csv_text(["us", "ops"], [[None, 3]]) == "us,ops\n,3\n"
