# pyright: reportMissingImports=false
"""An exported program walked node by node: known values as PyTorch tensors, all else as tensors of the graph."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves, tree_map_only

from aneforge.errors import AneforgeError, GraphError, first_line
from aneforge.frontends import LoadError
from aneforge.frontends.forms import truth
from aneforge.frontends.torch_rules import (
    DEEP_RULES,
    HOSTED,
    MOVES,
    REFUSED,
    activations,
    elementwise,
    indexing,
    plain_name,
    rule_for,
)
from aneforge.frontends.torch_rules.calls import arrays, host_nodes, in_fp16, numbers_of, ordered
from aneforge.frontends.torch_rules.deep import Deep
from aneforge.frontends.torch_rules.hosted import INTEGERS
from aneforge.frontends.torch_rules.naming import Names
from aneforge.frontends.torch_rules.node import HostOnlyError, Node, Rule, held
from aneforge.frontends.torch_rules.quantised import ENCODES
from aneforge.frontends.torch_rules.sizes import Sizes
from aneforge.graph.encoding import Encoded
from aneforge.graph.graph import Graph
from aneforge.graph.ops.leaf import const
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.tensor import Tensor

__all__ = ["Walker"]

Operand = tuple[Any, str, tuple[int, ...]]
"""A value, and the type and shape that PyTorch gives it."""

_MOST_ELEMENTS = 1 << 31
_MOST_FOLDED = 1 << 29
_LARGE = 1 << 18
_CHECKS = ("_assert", "sym_constrain_range")
_FREE = (
    "zeros_like",
    "ones_like",
    "full_like",
    "new_",
    "empty_like",
    "alias",
    "clone",
    "detach",
    "contiguous",
    "lift",
)
"""Ops that read no numbers: they may be asked of a whole number too."""


class Walker:
    """One program on its way to a graph."""

    def __init__(
        self,
        program: Any,
        what: str,
        dims: Mapping[str, int],
        fixed: Mapping[str, Any],
        names: Sequence[str] | Mapping[str, str] | None,
        let_go: Callable[[], None] | None = None,
    ) -> None:
        self.let_go = let_go
        self.program, self.what, self.fixed = program, what, dict(fixed)
        self.renamed = dict(names) if isinstance(names, Mapping) else {}
        self.output_names = [] if names is None or isinstance(names, Mapping) else list(names)
        self.names = Names()
        self.told: set[int] = set()  # uids of tensors that carry a name already
        self.sizes = Sizes(what, dims)
        self.states: dict[str, str] = {}
        self.shared: dict[Any, Any] = {}

    def graph(self) -> Graph:
        module, signature = self.program.graph_module, self.program.graph_signature
        self.names.look_at(module.graph.nodes)
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        user = [node for node in placeholders if node.name in signature.user_inputs]
        self.sizes.learn([(node.name, node.meta.get("val")) for node in user])
        absent = [name for name in self.fixed if name not in {node.name for node in user}]
        if absent:
            held_ = ", ".join(node.name for node in user)
            raise LoadError(f"{self.what}: no input {absent[0]!r} to fix; there are {held_ or 'none'}")
        values: dict[Any, Any] = {}
        for node, spec in zip(placeholders, signature.input_specs, strict=True):
            values[node] = self._leaf(node, spec)
        results = self._walk(module, values)
        outputs = self._outputs(results, signature.output_specs)
        try:
            return Graph(outputs, states=self.states) if self.states else Graph(outputs)
        except GraphError as error:
            raise LoadError(f"{self.what}: {first_line(error)}") from None

    # Leaves.

    def _leaf(self, node: Any, spec: Any) -> Any:
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            if spec.target in self.program.graph_signature.buffers_to_mutate.values():
                return self._port(spec.target, node.meta["val"])
            held_ = self.program.state_dict if spec.target in self.program.state_dict else self.program.constants
            if spec.target not in held_:
                raise LoadError(f"{self.what}: the weight {spec.target!r} is missing")
            return held_[spec.target].detach()
        if spec.kind is not InputKind.USER_INPUT:
            raise LoadError(f"{self.what}: input {node.name!r} is a {spec.kind.name.lower()}, which is not read")
        if node.name in self.fixed:
            return self._given(node.name, self.fixed[node.name], node.meta.get("val"))
        if isinstance(spec.arg, ConstantArgument):
            return spec.arg.value
        if not isinstance(spec.arg, TensorArgument):
            how = f"give it with fixed={{{node.name!r}: ...}}"
            raise LoadError(f"{self.what}: input {node.name!r} is a number, not a tensor; {how}")
        return self._port(node.name, node.meta["val"])

    def _given(self, name: str, value: Any, example: Any) -> Any:
        """A fixed input in the type and shape that the program expects."""
        if not isinstance(example, torch.Tensor):
            number = np.asarray(value).reshape(-1)[0].item()
            self.sizes.bind(example, number)
            return number
        shape = self.sizes.shape(example.shape)
        try:
            tensor = torch.as_tensor(np.asarray(value)).to(example.dtype)
            return tensor.expand(shape) if tensor.ndim == 0 else tensor.reshape(shape)
        except (RuntimeError, TypeError, ValueError) as error:
            raise LoadError(
                f"{self.what}: fixed input {name!r} must be of shape {list(shape)}: {first_line(error)}"
            ) from None

    def _port(self, name: str, example: Any) -> Tensor:
        """An input of the graph. A truth value comes as 0 or 1, a whole number goes to the host."""
        shape = held(self.sizes.shape(example.shape))
        shown = self.names.unique(self.renamed.get(name, name))
        if math.prod(shape) > _MOST_ELEMENTS:
            raise LoadError(f"{self.what}: input {name!r} of {list(shape)} has more elements than a tensor can")
        kind = str(example.dtype).removeprefix("torch.")
        if "complex" in kind:
            raise LoadError(f"{self.what}: input {name!r} holds complex numbers; the engine has none")
        try:
            if kind == "uint8":
                return graph_input(shape, dtype="uint8", name=shown).cast()
            if kind.startswith(("int", "uint")):
                return graph_input(shape, dtype="int32", name=shown)
            port = graph_input(shape, name=shown)
        except GraphError as error:
            raise LoadError(f"{self.what}: input {name!r}: {first_line(error)}") from None
        if kind != "bool":
            return port
        held_ = truth(port)
        self._name(held_, f"{shown}.holds")
        return held_

    # The walk.

    def _walk(self, module: Any, values: dict[Any, Any]) -> Any:
        """The results of a graph whose inputs have values already."""
        for node in module.graph.nodes:
            if node.op == "get_attr":
                found = operator.attrgetter(node.target)(module)
                values[node] = found.detach() if isinstance(found, torch.Tensor) else found
            elif node.op == "call_function" and (
                node.users or node.target is torch.ops.aten._local_scalar_dense.default
            ):
                values[node] = self._call(node, values)
            elif node.op == "output":
                return map_arg(node.args[0], lambda each: values[each])
            elif node.op not in ("placeholder", "call_function"):
                raise LoadError(f"{self.what}: {node.name} ({node.op}): not a call of an op")
        raise LoadError(f"{self.what}: the program has no outputs")

    def _call(self, node: Any, values: dict[Any, Any]) -> Any:
        args, kwargs = map_arg((node.args, node.kwargs), lambda each: values[each])
        target = node.target
        if target is operator.getitem:
            return args[0][args[1]]
        if isinstance(target, torch._ops.HigherOrderOperator):
            return self._inlined(node, args)
        known = self.sizes.value(node.meta.get("val"))
        if known is not None:
            return known
        where = f"{self.what}: {node.name} ({target})"
        if not isinstance(target, torch._ops.OpOverload):
            return self._arithmetic(where, target, args, kwargs)
        if plain_name(str(target))[0].startswith(_CHECKS):
            return None
        if target is torch.ops.aten._local_scalar_dense.default:
            return self._read_out(where, node, args[0])
        leaves = tree_leaves((args, kwargs), is_leaf=lambda each: isinstance(each, Deep))
        if any(isinstance(each, (Tensor, Deep)) for each in leaves):
            return self._ruled(node, args, kwargs, values)
        if plain_name(str(target))[0] in ENCODES:
            return self._ruled(node, args, kwargs, values)
        return self._folded(where, node, args, kwargs)

    def _arithmetic(self, where: str, target: Any, args: Any, kwargs: Any) -> Any:
        """On sizes, which are known numbers."""
        if any(isinstance(each, Tensor) for each in args):
            raise LoadError(f"{where}: arithmetic on what the graph computes, outside ATen")
        try:
            return target(*args, **kwargs)
        except Exception as error:
            raise LoadError(f"{where}: {first_line(error)}") from None

    def _read_out(self, where: str, node: Any, value: Any) -> Any:
        """A tensor's only number, as a size or an index."""
        if isinstance(value, (Tensor, Deep)):
            raise LoadError(
                f"{where}: turns a computed number into a size or an index, and the engine needs fixed ones; fix the "
                "input that it comes from (fixed={...}), or index with a tensor or a mask"
            )
        number = numbers_of(value).reshape(-1)[0].item()
        self.sizes.bind(node.meta.get("val"), number)
        return number

    def _inlined(self, node: Any, args: Any) -> Any:
        """A wrapped piece of a program (no_grad, autocast), or the branch of a choice that is known."""
        name = str(node.target)
        where = f"{self.what}: {node.name} ({name})"
        modules = [place for place, each in enumerate(args) if isinstance(each, torch.nn.Module)]
        if name == "cond" and not isinstance(args[0], Tensor):
            chosen = args[1] if bool(args[0]) else args[2]
            operands: Sequence[Any] = args[3]
        elif name.startswith("wrap") and len(modules) == 1:
            chosen, operands = args[modules[0]], args[modules[0] + 1 :]
        else:
            raise LoadError(f"{where}: control flow that the data decide; the engine runs a fixed program")
        inner = [each for each in chosen.graph.nodes if each.op == "placeholder"]
        self.names.look_at(chosen.graph.nodes)
        return self._walk(chosen, dict(zip(inner, operands, strict=True)))

    def _folded(self, where: str, node: Any, args: Any, kwargs: Any) -> Any:
        """A node of known inputs, computed by the op itself on the CPU."""
        target = node.target
        if torch.Tag.nondeterministic_seeded in target.tags and "dropout" not in str(target):
            raise LoadError(f"{where}: random numbers, which every run would draw anew; pass them as an input")
        if args and isinstance(args[0], Encoded) and (kept := _turned(plain_name(str(target))[0], *args)) is not None:
            return kept
        for shape, _ in self.sizes.results(node.meta.get("val")):
            if math.prod(shape) > _MOST_FOLDED and not target.is_view:
                raise LoadError(f"{where}: a static value of {list(shape)}, more than is held while reading")
        plain = tree_map_only(Encoded, lambda each: torch.from_numpy(each.decoded()).float(), args)
        plain, named = tree_map_only(
            torch.device, lambda _: torch.device("cpu"), (plain, {**kwargs, "pin_memory": None})
        )
        if "pin_memory" not in kwargs:
            del named["pin_memory"]
        try:
            with torch.no_grad():
                return target(*plain, **named)
        except Exception as error:
            raise LoadError(f"{where}: a static value could not be computed: {first_line(error)}") from None

    # Nodes that become graph.

    def _ruled(self, fx: Any, args: Any, kwargs: Any, values: dict[Any, Any]) -> Any:
        if fx.target is torch.ops.aten.index.Tensor:
            self._count_picked(fx, args)
        node = self._node(fx)
        where = f"{self.what}: {node.name} ({node.kind})"
        operands: list[Operand] = []
        for each in fx.all_input_nodes:
            shape, kind = self.sizes.results(each.meta.get("val"))[0]
            operands.append((values[each], kind, shape))
        try:
            made = self._made(node, fx.target, args, kwargs, operands)
        except LoadError as error:
            raise LoadError(f"{where}: {first_line(error)}") from None
        except (AneforgeError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise LoadError(f"{where}: {first_line(error)}") from None
        if self.let_go is not None and any(math.prod(shape) > _LARGE for _, _, shape in operands):
            self.let_go()
        several = isinstance(fx.meta.get("val"), (tuple, list))
        found = list(made) if isinstance(made, (list, tuple)) else [made]
        kept = [self._checked(each, place, node, where, several) for place, each in enumerate(found)]
        return kept if several else kept[0]

    def _count_picked(self, fx: Any, args: Any) -> None:
        """A known mask picks a known number of elements, which the program leaves open."""
        masks = [each for each in args[1] if isinstance(each, torch.Tensor) and each.dtype == torch.bool]
        extents = getattr(fx.meta.get("val"), "shape", ())
        if masks and not any(isinstance(each, (Tensor, Deep)) for each in args[1]):
            count = int(torch.stack([each.sum() for each in masks]).max())
            for extent in extents:
                if self.sizes.value(extent) is None:
                    self.sizes.bind(extent, count)

    def _node(self, fx: Any) -> Node:
        results = self.sizes.results(fx.meta.get("val"))
        several = isinstance(fx.meta.get("val"), (tuple, list))
        read = {each.args[1] for each in fx.users if each.target is operator.getitem and each.users}
        inputs = [each.meta.get("val") for each in fx.all_input_nodes]
        tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
        return Node(
            kind=str(fx.target),
            name=self.names.of(fx),
            shapes=[shape for shape, _ in results],
            dtypes=[kind for _, kind in results],
            operand_dtypes=[str(each.dtype).removeprefix("torch.") for each in tensors],
            operand_strides=[self.sizes.shape(each.stride()) for each in tensors[:1]],
            wanted=frozenset(read) if several else frozenset([0]),
            shared=self.shared,
        )

    def _made(self, node: Node, target: Any, args: Any, kwargs: Any, operands: Sequence[Operand]) -> Any:
        base, full = plain_name(node.kind)
        if base in REFUSED:
            raise LoadError(REFUSED[base])
        if any("complex" in kind for kind in (*node.dtypes, *(kind for _, kind, _ in operands))):
            raise LoadError("complex numbers; the engine has none")
        before, after = ordered(target, args, kwargs)
        node.options = arrays(after)
        if any(isinstance(each, Deep) for each, _, _ in operands):
            return self._deep(node, base, full, before)
        rule = rule_for(node.kind)
        if rule is not None and base not in HOSTED and base not in indexing.RULES and _computes_floats(node, operands):
            before = [self._in_fp16(each) for each in before]
            operands = [(self._in_fp16(each), *told) for each, *told in operands]  # type: ignore[misc]
        reason = _why_on_host(base, node, operands) if rule is not None or base in HOSTED else None
        try:
            if reason is None and rule is None:
                raise LoadError("no rule for this op")
            if reason is None and rule is not None:
                return rule(node, *arrays(before))
        except HostOnlyError as told:
            reason = str(told)
        return host_nodes(node, before, after, {id(each): told for each, *told in operands}, str(reason))

    def _in_fp16(self, value: Any) -> Any:
        """Whole numbers beside floats become floats, which only the host can do; the op itself stays on the engine."""
        if isinstance(value, (list, tuple)):
            return [self._in_fp16(each) for each in value]
        if not isinstance(value, Tensor) or value.dtype != "int32":
            return value
        if ("fp16", value.uid) not in self.shared:
            self.shared["fp16", value.uid] = in_fp16(value)
        return self.shared["fp16", value.uid]

    def _deep(self, node: Node, base: str, full: str, args: Sequence[Any]) -> Any:
        """An operand of more axes than an engine has: moves are known, and what works on each element by itself."""
        rule: Rule | None = DEEP_RULES.get(full) or DEEP_RULES.get(base)
        given = arrays(args)
        if rule is not None:
            return rule(node, *given)
        deep = [each for each in given if isinstance(each, Deep)]
        pointwise = {**elementwise.RULES, **activations.RULES}
        function = pointwise.get(full) or pointwise.get(base)
        alone = len(deep) == 1 and not any(isinstance(each, (Tensor, np.ndarray, list)) for each in given)
        if function is None or not alone:
            raise LoadError(f"works on a tensor of {deep[0].ndim if deep else 6} axes; no engine takes more than 5")
        found = function(node, *(each.flat if isinstance(each, Deep) else each for each in given))
        return Deep(found, deep[0].stored, deep[0].order)

    def _checked(self, value: Any, place: int, node: Node, where: str, several: bool) -> Any:
        """What a rule gave, of the shape and type that PyTorch says, under the node's name."""
        if value is None or isinstance(value, Encoded):
            return value
        if isinstance(value, np.ndarray):
            return torch.from_numpy(np.array(value))
        wanted, kind = node.shapes[place], node.dtypes[place]
        if value.shape != held(wanted):
            if isinstance(value, Deep) or value.size != math.prod(held(wanted)) or len(wanted) > 5:
                raise LoadError(f"{where}: gave shape {list(value.shape)}, not {list(wanted)}; please report it")
            value = value.reshape(*held(wanted))
        if isinstance(value, Tensor):
            if (kind == "bool") != (value.dtype == "bool"):
                value = truth(value) if kind == "bool" else value.cast() if value.dtype == "bool" else value
            alone = not several or node.wanted == frozenset([0]) or len(node.shapes) == 1
            self._name(value, node.name if alone else f"{node.name}.{place}")
        else:
            self._name(value.flat, node.name)
        return value

    def _name(self, tensor: Tensor, name: str) -> None:
        """The last op of a node bears the node's name, those before it the name and their own op."""
        fresh, open_ = [], [tensor]
        while open_:
            each = open_.pop()
            if each.uid in self.told or each.definition.leaf:
                continue
            self.told.add(each.uid)
            fresh.append(each)
            open_.extend(each.inputs)
        for each in fresh:
            each.named(name if each is tensor else f"{name}/{each.op}")

    # Results.

    def _outputs(self, results: Any, specs: Sequence[Any]) -> list[Tensor]:
        """What the user returns, then the new values of states."""
        flat = list(zip(results if isinstance(results, (list, tuple)) else [results], specs, strict=True))
        outputs: list[Tensor] = []
        for value, spec in flat:
            if spec.kind is OutputKind.USER_OUTPUT and value is not None:
                place = len(outputs)
                name = self.output_names[place] if place < len(self.output_names) else None
                outputs.append(self._output(value, name, outputs, f"output {place}"))
        for value, spec in flat:
            if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
                outputs.append(self._state(value, spec.target, outputs))
        return outputs

    def _output(self, value: Any, name: str | None, others: Sequence[Tensor], what: str) -> Tensor:
        if isinstance(value, Deep):
            raise LoadError(f"{self.what}: {what} has {value.ndim} axes; no engine gives more than 5")
        if not isinstance(value, Tensor):
            try:
                value = const(np.asarray(numbers_of(value), np.float64))
            except GraphError as error:
                raise LoadError(f"{self.what}: {what}: {first_line(error)}") from None
        shown = name or self.renamed.get(value.name or "")
        if any(each.uid == value.uid for each in others) or (shown and value.definition.leaf):
            value = value.reshape(*(value.shape or (1,)))
            self._name(value, self.names.unique(what.replace(" ", "_")))
        return value.named(self.names.unique(shown)) if shown else value

    def _state(self, value: Any, target: str, others: Sequence[Tensor]) -> Tensor:
        """The new value of a buffer, under a name of its own."""
        shown = self.renamed.get(target, target)
        made = value if isinstance(value, Tensor) else const(np.asarray(numbers_of(value), np.float64))
        if made.definition.leaf or any(each.uid == made.uid for each in others):
            made = made.reshape(*(made.shape or (1,)))
        self.told.add(made.uid)
        self.states[shown] = self.names.unique(f"{shown}.next")
        return made.named(self.states[shown])


def _turned(base: str, weight: Encoded, *rest: Any) -> Encoded | None:
    """A stored weight with its axes turned keeps its codes; None where the op does something else."""
    order = list(range(weight.ndim))
    if base in ("alias", "clone", "detach"):
        return weight
    if base == "t":
        return weight.transpose(order[::-1])
    if base == "permute":
        return weight.transpose([order[axis] for axis in rest[0]])
    if base == "transpose":
        a, b = order[rest[0]], order[rest[1]]
        order[a], order[b] = order[b], order[a]
        return weight.transpose(order)
    return None


def _computes_floats(node: Node, operands: Sequence[Operand]) -> bool:
    """Whether an op of mixed operands works on floats: it gives them, or compares with them."""
    kinds = [kind for each, kind, _ in operands if isinstance(each, Tensor)]
    mixed = any("float" in kind for kind in kinds)
    return ("float" in node.dtypes[0] and plain_name(node.kind)[0] != "_to_copy") or (mixed and node.gives_bool)


def _why_on_host(base: str, node: Node, operands: Sequence[Operand]) -> str | None:
    """Whether an op is the host's by what it is or by what it works on, and the reason."""
    if base in HOSTED:
        return HOSTED[base]
    if base.startswith(_FREE) or base.startswith("quantized_decomposed"):
        return None
    read = operands[:1] if base in indexing.RULES else operands  # the others of an indexing op are places
    data = [(each, kind) for each, kind, _ in read if isinstance(each, Tensor)]
    if any(each.dtype == "int32" for each, _ in data):
        return INTEGERS
    whole = any("int" in kind and each.dtype == "fp16" for each, kind in data)
    if whole and base not in MOVES and any("int" in kind for kind in node.dtypes):
        return INTEGERS
    return None
