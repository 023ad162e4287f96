"""The page of PyTorch's ops is what ``make docs-models`` writes."""

from __future__ import annotations

import subprocess
import sys

import pytest
import write_docs

# In a process of its own: what other tests import registers ops with PyTorch, which the page would list.
WRITE = "import sys, write_docs; sys.stdout.write(write_docs.MODEL_PAGES[sys.argv[1]]())"


@pytest.mark.parametrize("name", ["reference/torch.md"])
def test_the_committed_page_is_what_the_tool_writes(name):
    tools = str(write_docs.DOCS.parent / "tools")
    start = f"import sys; sys.path.insert(0, {tools!r}); {WRITE}"
    written = subprocess.run([sys.executable, "-c", start, name], capture_output=True, text=True, check=True).stdout
    assert (write_docs.DOCS / name).read_text(encoding="utf-8") == written, "run 'make docs-models'"
