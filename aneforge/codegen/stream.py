"""The register writes of a task: commands in the stream, and the words they write.

Generations to h13 state a byte address and a run of values. Later ones state a word address, with a run of values and
perhaps a base-address register to add, or with a mask of the words behind it (``programs.json`` register_stream).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from aneforge.codegen.bounds import ContainerError


def is_indexed(generation: str) -> bool:
    """Whether the stream states word addresses (h14 and later)."""
    return generation not in ("h11", "h12", "h13")


@dataclass
class Command:
    """One command: the byte address of each value, and the base-address register that is added to the first."""

    address: int
    values: list[int]
    mask: int | None = None
    """Of a scattered command: bit i stands for the word 1 + i behind the first."""
    bar: int | None = None
    extra: int = 0
    """Bits of the command word that no published field has; kept as they are."""
    places: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        steps = range(len(self.values)) if self.mask is None else _steps(self.mask)
        self.places = tuple(self.address + 4 * step for step in steps)

    def writes(self) -> Iterator[tuple[int, int]]:
        """(byte address, value) of each word."""
        return zip(self.places, self.values, strict=True)


def _steps(mask: int) -> list[int]:
    return [0, *(1 + bit for bit in range(16) if mask >> bit & 1)]


def decode(words: Sequence[int], generation: str, offset: int) -> list[Command]:
    """The commands of a task's words behind its header; ``offset`` is where they lie in the file."""
    read = _indexed if is_indexed(generation) else _plain
    commands = []
    place = 0
    while place < len(words):
        command, count = read(words[place])
        values = list(words[place + 1 : place + 1 + count])
        if len(values) != count:
            left = len(words) - place - 1
            raise ContainerError(
                offset + 4 * place, f"a command writes {count} words, but {left} are left in its task"
            )
        commands.append(Command(*command[:1], values, *command[1:]))
        place += 1 + count
    return commands


def _plain(word: int) -> tuple[tuple[int, None, None, int], int]:
    return (word & 0x03FFFFFC, None, None, word & 3), (word >> 26) + 1


def _indexed(word: int) -> tuple[tuple[int, int | None, int | None, int], int]:
    address = 4 * (word & 0x7FFF)
    if word >> 31:
        mask = word >> 15 & 0xFFFF
        return (address, mask, None, 0), 1 + mask.bit_count()
    bar = word >> 23 & 0x3F if word >> 29 & 1 else None
    known = 0x1FFFFF | (0x3F800000 if bar is not None else 0)
    return (address, None, bar, word & ~known), (word >> 15 & 0x3F) + 1


def encode(commands: Sequence[Command], generation: str) -> list[int]:
    """The words of commands."""
    words: list[int] = []
    for command in commands:
        words.append(_command_word(command, is_indexed(generation)))
        words += command.values
    return words


def _command_word(command: Command, indexed: bool) -> int:
    count = len(command.values) - 1
    if not indexed:
        return count << 26 | command.address | command.extra
    index = command.address >> 2
    if command.mask is not None:
        return 1 << 31 | command.mask << 15 | index
    bar = 0 if command.bar is None else 1 << 29 | command.bar << 23
    return bar | count << 15 | index | command.extra


_WINDOW = 16  # words behind the first that a scattered command can reach
_MOST = 64  # values of a run


def grouped(writes: Sequence[tuple[int, int]]) -> list[Command]:
    """Writes of one block, in the order of their addresses, as the commands with the fewest words.

    Where a run and a scattered command need the same number, published programs have the run if it is two words or
    more, and the scattered command otherwise.
    """
    addresses = [address for address, _ in writes]
    count = len(writes)
    cost = [0] * (count + 1)
    ends = [(0, False)] * count
    for start in reversed(range(count)):
        run = start + 1
        while run < count and addresses[run] == addresses[run - 1] + 4 and run - start < _MOST:
            run += 1
        reach = start + 1
        while reach < count and addresses[reach] <= addresses[start] + 4 * _WINDOW:
            reach += 1
        dense, scattered = 1 + run - start + cost[run], 1 + reach - start + cost[reach]
        is_run = dense < scattered or (dense == scattered and (run - start > 1 or reach == start + 1))
        cost[start], ends[start] = (dense, (run, True)) if is_run else (scattered, (reach, False))
    commands, place = [], 0
    while place < count:
        end, is_run = ends[place]
        values = [value for _, value in writes[place:end]]
        mask = (
            None
            if is_run
            else sum(1 << (address - addresses[place]) // 4 - 1 for address in addresses[place + 1 : end])
        )
        commands.append(Command(addresses[place], values, mask))
        place = end
    return commands
