"""How the property tests draw their examples: the same ones on every run, so that one commit has one answer.

`make test-search` draws new ones instead, to look for cases that nobody has seen; a case it finds is kept as a test
of its own.
"""

from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None, database=None)
settings.register_profile("search", derandomize=False, deadline=None, print_blob=True)
settings.load_profile("same")
