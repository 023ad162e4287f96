"""A group of commands of which one is meant where none is named: ``aneforge sweep MODEL`` is ``sweep run MODEL``."""

from __future__ import annotations

from typing import Any

from aneforge.cli.commands import ListedCommands

DEFAULT = "run"


class GroupWithDefault(ListedCommands):
    """Takes what is not one of its commands for arguments of ``run``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help",):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)
