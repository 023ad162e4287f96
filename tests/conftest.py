"""How the property tests draw their examples: the same ones on every run, so that one commit has one answer.

`make test-search` draws new ones instead, to look for cases that nobody has seen; a case it finds is kept as a test
of its own.
"""

import os
import signal
import tempfile

from hypothesis import settings

# No test reads or writes the cache of the person who runs it; the tests of the cache turn it on in a folder of their
# own (test_cache.py). Set here and not in a fixture, so that processes which tests start inherit it.
os.environ["ANEFORGE_NO_CACHE"] = "1"
os.environ["ANEFORGE_CACHE_DIR"] = os.path.join(tempfile.gettempdir(), f"aneforge-tests-{os.getpid()}")
os.environ.pop("ANEFORGE_CACHE_SIZE", None)

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would processes that tests start and
# interrupt. With a handler here those start as they do on a terminal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.register_profile("search", derandomize=False, deadline=None, print_blob=True)
settings.load_profile("same")


def pytest_addoption(parser):
    parser.addoption("--write-snapshots", action="store_true", help="write tests/snapshots as commands print now")
