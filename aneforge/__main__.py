"""``python -m aneforge`` is the same as the ``aneforge`` command."""

from aneforge.cli import main

main()
