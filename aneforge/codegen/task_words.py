"""Words of one task by what they mean, and the commands that write them."""

from __future__ import annotations

from collections.abc import Iterator

from aneforge.codegen.dialect import dialect_of, resolved
from aneforge.codegen.registers import register_map
from aneforge.codegen.stream import Command, grouped, is_indexed


class TaskWords:
    """Words of one task by address, as they are put."""

    def __init__(self, generation: str) -> None:
        self.generation = generation
        self.dialect = dialect_of(generation)
        self.map = register_map(generation)
        self.values: dict[int, int] = {}
        self.relocated: list[tuple[int, list[int], int]] = []
        """(address, values, base-address register), in the order of the stream."""

    def put(self, meaning: str, value: int | None) -> None:
        """A field or a word by its meaning; nothing for None, or where the generation has no such register."""
        found = resolved(self.generation, meaning)
        if found is None or value is None:
            return
        register, field = found
        assert register.address is not None
        old = self.values.get(register.address, 0)
        self.values[register.address] = value if field is None else field.write(old, value)

    def mark(self, meaning: str, bits: int) -> None:
        """Bits of a word that no field of the map has."""
        found = resolved(self.generation, meaning)
        assert found is not None
        assert found[0].address is not None
        self.values[found[0].address] = self.values.get(found[0].address, 0) | bits

    def put_register(self, block: str, name: str, value: int) -> None:
        address = self.map.register(block, name).address
        assert address is not None
        self.values[address] = value

    def relocate(self, meaning: str, bar: int, *values: int) -> None:
        """Words that the loader adds a base address to."""
        found = resolved(self.generation, meaning)
        if found is not None and found[0].address is not None:
            self.relocated.append((found[0].address, list(values), bar))

    def drop_defaults(self) -> None:
        """Leave out words whose value is the one that registers have where nothing is written."""
        if is_indexed(self.generation):
            found = resolved(self.generation, "task.cores")
            if found is not None and self.values.get(found[0].address or 0) == self.dialect.default_task:
                del self.values[found[0].address or 0]

    def commands(self) -> list[Command]:
        if is_indexed(self.generation):
            return [*self._sparse(), *(Command(place, values, bar=bar) for place, values, bar in self.relocated)]
        return list(self._dense())

    def _sparse(self) -> Iterator[Command]:
        for name in self.map.order:
            addresses = [register.address for register in self.map.blocks[name].registers]
            writes = [(place, self.values[place]) for place in addresses if place is not None and place in self.values]
            yield from grouped(writes)

    def _dense(self) -> Iterator[Command]:
        """Every block in full; a task without weights leaves the words of their streams out."""
        for name in self.map.order:
            block = self.map.blocks[name]
            runs = [block.registers]
            if name == "KernelDMASrc" and not self.values.get(block.registers[0].address or 0, 0):
                runs = [block.registers[:18], block.registers[50:]]
            for run in runs:
                assert run[0].address is not None
                yield Command(run[0].address, [self.values.get(register.address or 0, 0) for register in run])
