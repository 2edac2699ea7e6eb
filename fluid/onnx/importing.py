"""Build a program from an ONNX model, node by node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import unique_name
from ..errors import FluidError, FormatError, InferenceError, NameNotFoundError, ProgramError, did_you_mean
from ..ir.nesting import walk
from ..ir.program import Program, Variable, program_guard
from ..opdef.registry import EMPTY
from ..values.types import VarType, as_dtype, is_floating
from .builder import Builder
from .folding import folded
from .functions import attributes_bound, body_of_op
from .node import OnnxNode
from .ops_in.control_flow import RanksDiffer, either
from .ops_in.sequence import as_array
from .ordering import in_order
from .reading import check_names, check_names_of_model, read_model_proto
from .table import import_of
from .tensors import OnnxTensorReader, check_shape
from .types import element_type, is_held_wider, number_of
from .values import Absent, SequenceValue, TensorValue, Value
from .weights import names_of_weights

_DEEPEST_CALL = 24
_SPARE_NODES, _BYTES_OF_NODE = 3000, 4
"""The most nodes that calls and loop trips may read again: a fixed number, and one more for these many bytes of
the file. The same limit holds for the ops built from a file's nodes; building an op takes 0.1 ms."""
_MOST_NUMBERS = 64
"""The most integers of an initializer that become an op of the program, whose value plans know."""
_DOMAINS = ("", "ai.onnx")
Scope = dict[str, Value]


@dataclass
class Imported:
    """A program built from an ONNX model.

    Attributes:
        program: the program, with feed and fetch ops as Paddle's inference models have.
        feeds: names of the variables to be fed, in order.
        fetches: names of the variables that it computes, in order.
        values: the values of its persistable variables.
        dimensions: feed -> sizes of its dimensions; a name or None if the size is known only at run time.
    """

    program: Program
    feeds: list[str]
    fetches: list[str]
    values: dict[str, Any]
    dimensions: dict[str, list[int | str | None]] = field(default_factory=dict)


def import_model(
    path: str, constants: Mapping[str, Any] | None = None, sizes: Mapping[str, int | Sequence[int | None]] | None = None
) -> Imported:
    """Import the ONNX model in a file as a program; `constants` are values of inputs, which then are not fed.

    `sizes` are shapes of inputs, None for sizes that stay open, and sizes of dimensions by their names.

    Raises:
        FormatError: the file is damaged, or has parts that programs cannot hold; names the node and what was expected.
        NameNotFoundError: the model has no input, and no dimension, of a name in `sizes`.
        InferenceError: the sizes of an input contradict the model.
    """
    model, tensors = read_model_proto(path)
    try:
        return Importer(path, model, tensors, constants or {}, sizes or {}).imported()
    except RecursionError:
        raise FormatError(f"{path}: its graphs and functions are nested too deep") from None
    except FormatError as error:
        raise error if str(error).startswith(path) else FormatError(f"{path}: {error}") from None


class Importer:
    """Builds the program of one model.

    Attributes:
        builder: appends the ops.
    """

    def __init__(
        self, path: str, model: Any, tensors: OnnxTensorReader, constants: Mapping[str, Any], sizes: Mapping[str, Any]
    ) -> None:
        self._path = path
        self._model = model
        self._tensors = tensors
        self._constants, self._sizes = constants, sizes
        check_names_of_model(model)
        self._opsets = {("" if opset.domain in _DOMAINS else opset.domain): opset.version for opset in model.opset_import}
        self._functions = {(function.domain, function.name, function.overload): function for function in model.functions}
        self._calls: list[Any] = []
        self._expansion = _SPARE_NODES + tensors.size // _BYTES_OF_NODE
        self._scopes: list[Scope] = []
        self._dimensions: dict[str, list[int | str | None]] = {}
        self.program = Program()
        graph = model.graph
        names = {value.name for value in (*graph.input, *graph.initializer)}
        for node in graph.node:
            names.update(node.output)
        self._weights = names_of_weights(graph.node)
        self.builder = Builder(self.program, names, tensors.room, self._expansion)
        self._temporary_names = unique_name.UnusedNames(names, "onnx.")

    # -- the model
    def imported(self) -> Imported:
        graph = self._model.graph
        with program_guard(self.program, Program()), unique_name.guard(self._temporary_names):
            scope: Scope = {}
            self._scopes.append(scope)
            self._declare_initializers(graph, scope)
            self._declare_constants(graph, scope)
            self._check_sizes([info for info in graph.input if info.name not in scope])
            feeds = [self._declare_feed(info, scope) for info in graph.input if info.name not in scope]
            self._nodes(graph.node, [output.name for output in graph.output])
            fetches = [self._as_output(output.name) for output in graph.output]
            self._scopes.pop()
        if not fetches:
            raise FormatError("the graph has no outputs")
        if len(set(fetches)) < len(fetches):
            raise FormatError("the graph names an output twice")
        _drop_dead_ops(self.program, fetches)
        self._add_traffic(feeds, fetches)
        root = self.program.global_block()
        values = {name: array for name, array in self.builder.values.items() if name in root.vars}
        return Imported(self.program, feeds, fetches, values, self._dimensions)

    def _declare_initializers(self, graph: Any, scope: Scope) -> None:
        for tensor in graph.initializer:
            if not tensor.name or tensor.name in scope:
                raise FormatError(
                    f"there are two initializers called {tensor.name!r}" if tensor.name else "an initializer has no name"
                )
            array = self.array_of(tensor, f"initializer {tensor.name!r}")
            scope[tensor.name] = self._weight(tensor.name, array, tensor.data_type)
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            if not name or name in scope:
                raise FormatError(f"there are two initializers called {name!r}" if name else "an initializer has no name")
            scope[name] = self._weight(name, self.dense(sparse, f"initializer {name!r}"), sparse.values.data_type)

    def _declare_constants(self, graph: Any, scope: Scope) -> None:
        names = [info.name for info in graph.input if info.name not in scope]
        for name, array in self._constants.items():
            if name not in names:
                raise ProgramError(f"{self._path}: the model has no input {name!r} to be a constant{did_you_mean(name, names)}")
            if array is None:
                scope[name] = Absent()
                continue
            held = np.asarray(array).view()
            held.flags.writeable = False  # it is not made here, and does not count
            scope[name] = self.builder.constant(held)

    def _weight(self, name: str, array: Any, onnx_type: int | None) -> TensorValue:
        is_weight = is_floating(as_dtype(array.dtype)) and array.ndim > 0
        wider = onnx_type if onnx_type is not None and is_held_wider(onnx_type) else None
        is_few = not is_weight and array.size <= _MOST_NUMBERS
        if self._scopes[1:] or array.ndim == 0 or is_few:  # of an inner graph; a divisor of scores; sizes or axes
            return self.builder.constant(array, wider)
        ours = self._variable_name(name)
        return TensorValue(
            array=array,
            make=lambda value: self.builder.persistable(ours, value),
            is_weight=is_weight,
            onnx_type=wider,
        )

    def array_of(self, tensor: Any, where: str) -> Any:
        """The array of a `TensorProto`."""
        return self._tensors.array(tensor, where)

    def dense(self, sparse: Any, where: str) -> Any:
        """The array of a `SparseTensorProto`."""
        shape = tuple(sparse.dims)
        where = f"{self._path}: {where}"
        count = check_shape(shape, where)
        values, indices = (self.array_of(part, where) for part in (sparse.values, sparse.indices))
        try:
            self._tensors.room.take_array(count, itemsize=values.itemsize)
        except FormatError as error:
            raise FormatError(f"{where}: a sparse tensor of shape {list(shape)} is too large to be made dense: {error}") from None
        out = np.zeros(count, values.dtype)
        places = indices.astype(np.int64)
        try:
            if places.ndim == 2:
                places = np.ravel_multi_index(tuple(places.T), shape) if len(places) else places.reshape(-1)
            if places.size and not 0 <= places.min() <= places.max() < count:
                raise ValueError(f"indices should be in [0, {count})")
            out[places] = values.reshape(-1)
        except (ValueError, IndexError) as error:
            raise FormatError(f"{where}: its indices do not fit its shape {list(shape)}: {error}") from None
        out.flags.writeable = False
        return out.reshape(shape)

    def _check_sizes(self, inputs: Sequence[Any]) -> None:
        """`NameNotFoundError` if a name in `sizes` is neither an input nor a dimension of one."""
        names = {info.name for info in inputs}
        names |= {size.dim_param for info in inputs for size in info.type.tensor_type.shape.dim if size.dim_param}
        for name in self._sizes:
            if name not in names:
                raise NameNotFoundError(f"{self._path}: no input and no dimension is called {name!r}{did_you_mean(name, names)}")

    def _declare_feed(self, info: Any, scope: Scope) -> str:
        """Declare the variable of an input of the graph; returns its name."""
        name = info.name
        if not name:
            raise FormatError("an input of the graph has no name")
        scope[name] = self._fed(self._variable_name(name), info.type, f"input {name!r}")
        return self._variable_name(name)

    def _fed(self, name: str, kind: Any, where: str) -> Value:
        root = self.program.global_block()
        type_case = kind.WhichOneof("value")
        if type_case == "optional_type":
            return self._fed(name, kind.optional_type.elem_type, where)
        if type_case == "sequence_type":
            inner = kind.sequence_type.elem_type
            if inner.WhichOneof("value") != "tensor_type":
                raise FormatError(f"{where} is a sequence of values that are no tensors")
            dtype = element_type(inner.tensor_type.elem_type, where)
            shape = self._shape(inner.tensor_type, name) if inner.tensor_type.HasField("shape") else ()
            held = root.create_var(name=name, shape=shape, dtype=dtype, type=VarType.LOD_TENSOR_ARRAY, is_data=True)
            return SequenceValue(variable=held)
        if type_case not in ("tensor_type", "sparse_tensor_type"):
            raise FormatError(f"{where} is of type {type_case}; a program is fed tensors and sequences of them")
        tensor = getattr(kind, type_case)
        if not tensor.HasField("shape"):
            raise FormatError(
                f"{where} has no shape: a program must know the number of its dimensions. onnx.shape_inference may tell"
            )
        dtype = element_type(tensor.elem_type, where)
        var = root.create_var(
            name=name, shape=self._shape(tensor, name), dtype=dtype, is_data=True, need_check_feed=True, stop_gradient=True
        )
        return TensorValue(var, onnx_type=tensor.elem_type if is_held_wider(tensor.elem_type) else None)

    def _shape(self, tensor: Any, name: str) -> list[int]:
        shape = []
        names: list[int | str | None] = []
        for size in tensor.shape.dim:
            if isinstance(size.dim_param, bytes):
                raise FormatError(f"the name of a dimension of {name!r}, {size.dim_param[:40]!r}, is no text: it is not UTF-8")
            is_static = size.WhichOneof("value") == "dim_value" and size.dim_value >= 0
            number = size.dim_value if is_static else self._sizes.get(size.dim_param, -1)
            if not isinstance(number, (int, np.integer)):  # an input has the name of the dimension
                number = -1
            shape.append(int(number))
            names.append(shape[-1] if shape[-1] >= 0 else size.dim_param or None)
        shape, names = self._with_sizes(name, shape, names)
        check_shape(tuple(max(size, 0) for size in shape), f"input {name!r}")
        self._dimensions[name] = names
        return shape

    def _with_sizes(self, name: str, shape: list[int], names: list[int | str | None]) -> tuple[list[int], list[int | str | None]]:
        """The sizes and names of an input's dimensions with the sizes that `load_model` was given for it."""
        wanted = self._sizes.get(name)
        if wanted is None or isinstance(wanted, (int, np.integer)):
            return shape, names
        sizes = [-1 if size is None else int(size) for size in wanted]
        if len(sizes) != len(shape) or any(a != b and -1 not in (a, b) for a, b in zip(sizes, shape, strict=True)):
            raise InferenceError(f"{self._path}: the sizes {list(wanted)} do not fit the input {name!r}, of {names}")
        merged = [max(pair) for pair in zip(sizes, shape, strict=True)]
        return merged, [size if size >= 0 else text for size, text in zip(merged, names, strict=True)]

    def _as_output(self, name: str) -> str:
        """Bind an output of the graph to a variable with the output's name; return that name."""
        value = self.find(name)
        root = self.program.global_block()
        self.builder.base = name
        ours = self._variable_name(name)
        if isinstance(value, SequenceValue):
            variable = as_array(self.builder, value)
        elif isinstance(value, TensorValue):
            variable = value.variable(root)
        else:
            raise FormatError(f"the output {name!r} is an optional that holds nothing; a program computes tensors")
        if variable.name == ours:
            return ours
        if root.has_var(ours):
            raise FormatError(f"the output {name!r} has the name of another value")
        self.builder.append("assign", {"X": variable}, {"Out": root.create_var(name=ours, type=variable.type)}, {})
        return ours

    def _add_traffic(self, feeds: list[str], fetches: list[str]) -> None:
        """Add feed and fetch ops, as in the inference models of Paddle."""
        root = self.program.global_block()
        feed_name, fetch_name = (root.fresh_name(name) for name in ("feed", "fetch"))
        feed = root.create_var(name=feed_name, type=VarType.FEED_MINIBATCH, persistable=True)
        fetch = root.create_var(name=fetch_name, type=VarType.FETCH_LIST, persistable=True)
        ops = root.ops
        root.ops = []
        for column, name in enumerate(feeds):
            root.append_op("feed", {"X": [feed]}, {"Out": [name]}, {"col": column}, ())
        root.ops += ops
        for column, name in enumerate(fetches):
            root.append_op("fetch", {"X": [name]}, {"Out": [fetch]}, {"col": column}, ())

    # -- names
    def _variable_name(self, name: str) -> str:
        """The variable's name for a value: the same name, unless that means something else in programs."""
        return name if name != EMPTY and "@GRAD" not in name else name.replace("@", "_")

    def find(self, name: str) -> Value:
        """Look a name up, from the innermost graph outwards."""
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        raise FormatError(f"the value {name!r} is read, and nothing computes it")

    # -- nodes
    def _nodes(self, nodes: Sequence[Any], results: Sequence[str]) -> None:
        """Append the ops of nodes; `results` are the names that are read afterwards."""
        ordered = in_order(nodes)
        for place, proto in enumerate(ordered):
            try:
                try:
                    self._node(proto)
                except RanksDiffer:
                    self._fork(proto, ordered[place + 1 :], results)
                    return
            except FluidError as error:
                kind = error if isinstance(error, FormatError) else None
                text = str(error).partition("\n  op:")[0] if kind is None else str(error)
                raise FormatError(text if text.startswith("node ") else f"{self._describe(proto, place)}: {text}") from None
            except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, AssertionError, MemoryError) as error:
                raise FormatError(
                    f"{self._describe(proto, place)}: its inputs and attributes do not fit together: "
                    f"{type(error).__name__}: {error}"
                ) from None

    def _fork(self, proto: Any, behind: Sequence[Any], results: Sequence[str]) -> None:
        """Append an `If` whose branches differ in the number of dimensions, and the nodes behind it to both branches.

        If these nodes cannot follow one of the branches, no run can take it: then they follow the other branch alone, after an
        `assert` of the condition.
        """
        graphs = {attribute.name: attribute.g for attribute in proto.attribute}
        condition = self.find(proto.input[0])
        needed = [name for name in dict.fromkeys(results) if not any(name in scope for scope in self._scopes)]

        errors: list[FormatError | None] = [None, None]

        def path(number: int, graph: Any) -> Callable[[], list[Value]]:
            def build() -> list[Value]:
                self._expand(len(behind))
                calls, base = self._calls, self.builder.base
                with self.inner(graph, []) as outputs:
                    values = list(outputs)
                self._scopes.append({name: value for name, value in zip(proto.output, values, strict=False) if name})
                self._calls = [*calls, None]  # names in the other path are the same
                try:
                    self._nodes(behind, results)
                    return [self.find(name) for name in needed]
                except FormatError as error:
                    errors[number] = error
                    raise
                finally:
                    self._scopes.pop()
                    self._calls, self.builder.base = calls, base

            return build

        paths = [path(number, graphs[name]) for number, name in enumerate(("then_branch", "else_branch"))]
        block, blocks = self.builder.block, self.program.blocks
        op_count, block_count = len(block.ops), len(blocks)
        try:
            merged = either(self.builder, condition, paths)
        except FormatError:
            if errors == [None, None]:
                raise
            del block.ops[op_count:], blocks[block_count:]
            possible = 0 if errors[0] is None else 1
            is_true = self.builder.f.reshape2(condition, shape=[1])
            holds = is_true if possible == 0 else self.builder.f.logical_not(is_true)
            self.builder.append("assert", {"Cond": holds, "Data": [condition]}, {}, {})
            merged = paths[possible]()
        except RanksDiffer:
            raise FormatError(
                "the outputs of the graph have another number of dimensions in one branch than in the other; give load_model the "
                "sizes of inputs, sizes={...}, which may decide the branch"
            ) from None
        self._scopes[-1].update(zip(needed, merged, strict=True))

    def _describe(self, proto: Any, place: int) -> str:
        name = f" {proto.name!r}" if proto.name else ""
        outputs = f", which makes {', '.join(proto.output[:3])}" if len(proto.output) else ""
        return f"node {place} ({proto.domain + '.' if proto.domain not in _DOMAINS else ''}{proto.op_type}{name}{outputs})"

    def _node(self, proto: Any) -> None:
        if self._calls:
            self._expand(1)
        domain = "" if proto.domain in _DOMAINS else proto.domain
        inputs = [self.find(name) if name else None for name in proto.input]
        while inputs and inputs[-1] is None:
            inputs.pop()
        function = self._functions.get((proto.domain, proto.op_type, proto.overload))
        self.builder.base = next((name for name in proto.output if name), "value")
        start = len(self.builder.block.ops)
        if function is not None:
            results: Any = self._call(function, proto, inputs)
        else:
            results = self._apply(domain, proto, inputs)
        results = results if isinstance(results, tuple) else (results,)
        if len(results) < len(proto.output) and any(proto.output[len(results) :]):
            raise FormatError(f"it has {len(proto.output)} outputs, and should have {len(results)} at most")
        for name, result in zip(proto.output, results, strict=False):
            if name:
                self._bind(name, result, start)

    def _apply(self, domain: str, proto: Any, inputs: list[Value | None]) -> Any:
        """The outputs of a node: constants where it can be folded, else ops by its importer, else by its function in ONNX."""
        if domain not in self._opsets and not (domain == "" and self._calls):
            raise FormatError(f"the model imports no opset of the domain {domain!r}")
        opset = self._opsets.get(domain, 1)
        node = OnnxNode(proto, inputs, opset, self)
        if domain == "":
            result = folded(node)
            if isinstance(result, TensorValue):
                return result
        how = import_of(proto.op_type if domain == "" else f"{domain}::{proto.op_type}", opset)
        if how is not None:
            outputs = how.build(self.builder, node)
            if outputs is not NotImplemented:
                return _with_elements(outputs, result) if domain == "" and result is not None else outputs
        body = body_of_op(domain, proto, opset, [self._type_of(value) for value in inputs])
        if body is None:
            raise FormatError(f"the op {proto.op_type} of {domain or 'ONNX'}, opset {opset}, is not known here, in this form")
        return self._call(body, proto, inputs)

    def _bind(self, name: str, result: Any, start: int) -> None:
        """Bind a name of the model to the result of a node."""
        scope = self._scopes[-1]
        if name in scope:
            raise FormatError(f"the value {name!r} is computed twice")
        if isinstance(result, Variable):
            scope[name] = self._as_value(result)
            if not self._calls:
                self._rename(result, self._variable_name(name), start)
        elif isinstance(result, (np.ndarray, np.generic)):
            scope[name] = self.builder.constant(result)
        elif isinstance(result, TensorValue) and name in self._weights and result.fixed is not None and is_floating(result.dtype):
            scope[name] = result if self._calls else self._weight(name, result.array, result.onnx_type)
        elif isinstance(result, (TensorValue, SequenceValue, Absent)):
            scope[name] = result
            if isinstance(result, TensorValue) and result.array is None and not self._calls:
                self._rename(result.variable(self.builder.block), self._variable_name(name), start)
        else:
            raise FormatError(f"its output {name!r} is not computed here")

    def _as_value(self, variable: Variable) -> Value:
        return SequenceValue(variable=variable) if variable.type is VarType.LOD_TENSOR_ARRAY else TensorValue(variable)

    def _rename(self, variable: Variable, name: str, start: int) -> None:
        """Rename a variable that the ops from `start` on made; skip variables of earlier ops, and ops with sub-blocks."""
        block = self.builder.block
        if variable.block is not block or variable.name == name or block.find_var(name) is not None or variable.persistable:
            return
        if variable.is_data:
            return
        old = variable.name
        ops = block.ops[start:]
        if not any(old in names for op in ops for names in op.outputs.values()) or any(op.sub_blocks for op in ops):
            return
        for op in ops:
            for side in (op.inputs, op.outputs):
                for names in side.values():
                    if old in names:
                        names[:] = [name if current == old else current for current in names]
        del block.vars[old]
        variable.name = name
        block.vars[name] = variable

    # -- functions
    def _expand(self, count: int) -> None:
        self._expansion -= count
        if self._expansion < 0:
            raise FormatError(
                "its functions call functions, or its loops hold loops, so often that a small file stands for too many nodes"
            )

    def _call(self, function: Any, proto: Any, inputs: list[Value | None]) -> Any:
        """Compute a function's results for a node that calls it."""
        self._expand(1)
        if len(self._calls) >= _DEEPEST_CALL or any(active is function for active in self._calls):
            raise FormatError(
                f"the function {function.name} calls itself, or functions call functions more than {_DEEPEST_CALL} deep"
            )
        check_names(function)
        scope: Scope = {}
        for place, name in enumerate(function.input):
            value = inputs[place] if place < len(inputs) else None
            if value is not None:
                scope[name] = value
        opsets = self._opsets
        local_opsets = {("" if opset.domain in _DOMAINS else opset.domain): opset.version for opset in function.opset_import}
        self._opsets = {**opsets, **local_opsets}
        outer, self._scopes = self._scopes, [scope]
        self._calls.append(function)
        base = self.builder.base
        absent_inputs = {name for place, name in enumerate(function.input) if place >= len(inputs) or inputs[place] is None}
        try:
            nodes = [attributes_bound(node, proto, function, absent_inputs) for node in function.node]
            self._nodes(nodes, [name for name in function.output if name])
            results = tuple(scope.get(name) for name in function.output)
        finally:
            self._calls.pop()
            self._scopes = outer
            self._opsets = opsets
            self.builder.base = base
        return results

    def _type_of(self, value: Value | None) -> bytes:
        """The type of a value as a serialized `TypeProto`."""
        import onnx

        kind = onnx.TypeProto()
        inner = kind
        if isinstance(value, SequenceValue):
            inner = kind.sequence_type.elem_type
            value = value.items[0] if value.items else None
            if value is None:
                inner.tensor_type.elem_type = 1
        if isinstance(value, TensorValue):
            inner.tensor_type.elem_type = value.onnx_type or number_of(value.dtype)
            for size in value.shape:
                dimension = inner.tensor_type.shape.dim.add()
                if size >= 0:
                    dimension.dim_value = size
            inner.tensor_type.shape.SetInParent()
        serialized: bytes = kind.SerializeToString()
        return serialized

    # -- graphs inside
    @contextmanager
    def inner(self, graph: Any, inputs: Sequence[Value]) -> Iterator[list[Value]]:
        """Append the ops of a node's graph to the current block, for these inputs; yields the graph's outputs."""
        if len(inputs) < len(graph.input):
            raise FormatError(f"its graph {graph.name!r} takes {len(graph.input)} inputs, and is given {len(inputs)}")
        check_names(graph)
        scope: Scope = {info.name: value for info, value in zip(graph.input, inputs, strict=False)}
        self._scopes.append(scope)
        calls, base = self._calls, self.builder.base
        self._calls = [*calls, None]  # names in the inner graph may equal outer names
        try:
            if len(self._calls) > _DEEPEST_CALL:
                raise FormatError(f"graphs and functions are more than {_DEEPEST_CALL} deep")
            self._declare_initializers(graph, scope)
            self._nodes(graph.node, [output.name for output in graph.output])
            yield [self.find(output.name) for output in graph.output]
        finally:
            self._scopes.pop()
            self._calls, self.builder.base = calls, base


def _with_elements(outputs: Any, elements: Any) -> Any:
    """Attach the partly known elements to a node's result."""
    if isinstance(outputs, Variable):
        return TensorValue(outputs, elements=elements)
    if isinstance(outputs, TensorValue) and outputs.array is None:
        outputs.elements = elements
    return outputs


def _drop_dead_ops(program: Program, fetches: list[str]) -> None:
    """Remove the ops of block 0 that no output needs, and variables that nothing names."""
    root = program.global_block()
    needed = set(fetches)
    live_ops = []
    for op in reversed(root.ops):
        outputs = op.output_arg_names
        if any(name in needed for name in outputs):
            live_ops.append(op)
            needed.update(name for inner in walk([op]) for name in inner.input_arg_names)
    root.ops = live_ops[::-1]
    used = {name for block in program.blocks for op in block.ops for name in (*op.input_arg_names, *op.output_arg_names)}
    for name in [name for name, var in root.vars.items() if name not in used and not var.is_data and name not in fetches]:
        del root.vars[name]
