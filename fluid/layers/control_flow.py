"""Loops, branches and recurrence, whose bodies are blocks of ops; and arrays of tensors.

The user's code runs once, with a new block as the current one, to build the body. When the body is complete, the op that owns
the block is given what the body reads from outside and writes there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from .. import unique_name
from ..building.layer_helper import LayerHelper, apply, apply_many, refuse_tensor
from ..building.nested import flatten, rebuild, structure
from ..building.versions import builds
from ..errors import FluidTypeError, ProgramError
from ..ir.checked import check_variable
from ..ir.inference import infer_shape
from ..ir.program import Block, Operator, Program, Variable, default_main_program
from ..ir.versions import outer_names
from ..values.types import DTypeLike, VarType
from . import ops
from .tensor import assign, cast, constant, fill_constant

__all__ = [
    "StaticRNN",
    "Switch",
    "While",
    "array_length",
    "array_read",
    "array_write",
    "case",
    "cond",
    "create_array",
    "increment",
    "switch_case",
    "tensor_array_to_tensor",
    "while_loop",
]


# ------------------------------------------------------------------------------------------------------------ blocks
@contextlib.contextmanager
def _new_block(program: Program) -> Iterator[Block]:
    """A new block inside the current one; layers in the ``with`` append to it. An exception there removes it again."""
    count = len(program.blocks)
    block = program.create_block()
    try:
        with program.block_guard(block):
            yield block
    except BaseException:
        del program.blocks[count:]
        raise


def _check_condition(value: Any, where: str) -> None:
    check_variable(value, where)
    if value.dtype is not VarType.BOOL or any(size not in (1, -1) for size in value.shape):
        raise FluidTypeError(f"{where} should be one bool; {value.name} is {value.describe()}")


def _scopes(block: Block) -> Variable:
    return block.create_var(type=VarType.STEP_SCOPES)


def _settle_shapes(body: Block, writes: Iterable[str]) -> None:
    """Infers the body's shapes until they hold in every iteration: writing to outer variables may make their shapes unknown."""
    names = list(writes)
    before = None
    while before != (before := [body.var(name).shape for name in names]):
        for op in body.ops:
            infer_shape(op)


def _is_blank(var: Variable) -> bool:
    """Whether a variable has no value unless an op writes it."""
    return var.type is VarType.LOD_TENSOR and not var.persistable and not var.is_data


class While:
    """Runs a block as long as a condition is true.

    The block changes variables from outside by overwriting them (`assign`, `increment`, ``cond=``, `array_write`).

    Args:
        cond: one bool, which the block must write.
        is_test: keep nothing for a gradient.

    >>> i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 10)
    >>> cond = layers.less_than(i, n)
    >>> with layers.While(cond).block():
    ...     i = layers.increment(i, 3)
    ...     cond = layers.less_than(i, n, cond=cond)
    >>> fluid.Executor().run(fetch_list=[i])
    [array([12])]
    """

    def __init__(self, cond: Variable, is_test: bool = False, name: str | None = None) -> None:
        _check_condition(cond, "While: cond")
        refuse_tensor(cond, "While", "Python's while, or layers.while_loop")
        self.helper = LayerHelper("while", name)
        self.cond_var = cond
        self.is_test = is_test

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Layers in the ``with`` append to the loop's body."""
        program = self.helper.main_program
        with _new_block(program) as body:
            yield
            reads, writes = outer_names(body)
            if self.cond_var.name not in writes:
                raise ProgramError(
                    f"the block of While never writes its condition {self.cond_var.name}, so the loop would not end; "
                    f"end the block with, for example, layers.less_than(i, n, cond={self.cond_var.name})"
                )
            _settle_shapes(body, writes)
        parent = program.current_block()
        # X includes what the loop writes if it has a value before, which stays if no iteration runs. Paddle rejects an X without.
        computed = {name for block in program.blocks if block is not body for op in block.ops for name in op.output_arg_names}
        before = [name for name in writes if name in computed or not _is_blank(parent.var(name))]
        parent.append_op(
            "while",
            inputs={
                "X": [name for name in dict.fromkeys((*reads, *before)) if name != self.cond_var.name],
                "Condition": self.cond_var,
            },
            outputs={"Out": writes, "StepScopes": _scopes(parent)},
            attrs={"sub_block": body, "is_test": self.is_test},
        )


@contextlib.contextmanager
def _conditional_block(condition: Variable | list[Variable], fresh: Sequence[str] = (), is_scalar: bool = True) -> Iterator[None]:
    """Layers in the ``with`` run only if `condition` is true; or, unless `is_scalar`, if no tensor of it is empty.

    The names `fresh` have no value before.
    """
    program = default_main_program()
    with _new_block(program) as body:
        yield
        reads, writes = outer_names(body)
        _settle_shapes(body, [name for name in writes if name not in fresh])
    parent = program.current_block()
    parent.append_op(
        "conditional_block",
        inputs={"Cond": condition, "Input": [name for name in dict.fromkeys((*reads, *writes)) if name not in fresh]},
        outputs={"Out": writes, "Scope": _scopes(parent)},
        attrs={"sub_block": body, "is_scalar_condition": is_scalar},
    )


class ConditionalBlock:
    """Runs a block if a condition is true; `Switch` and `cond` use it.

    Args:
        inputs: a list of one bool if `is_scalar_condition`; otherwise tensors, where the block runs if none of them is empty.

    >>> x, out = layers.fill_constant([1], "float32", 3.0), layers.create_tensor("float32")
    >>> with layers.control_flow.ConditionalBlock([x > 0.0], is_scalar_condition=True).block():
    ...     out = layers.assign(x * 2.0, out)
    >>> fluid.Executor().run(fetch_list=[out])
    [array([6.], dtype=float32)]
    """

    def __init__(self, inputs: Sequence[Variable], is_scalar_condition: bool = False, name: str | None = None) -> None:
        for value in inputs:
            check_variable(value, "ConditionalBlock: inputs")
            refuse_tensor(value, "ConditionalBlock", "Python's if, or layers.cond")
        if is_scalar_condition:
            _check_condition(inputs[0], "ConditionalBlock: inputs")
        self._conditions, self._is_scalar = list(inputs), is_scalar_condition

    def block(self) -> contextlib.AbstractContextManager[None]:
        """Layers in the ``with`` append to the block."""
        return _conditional_block(self._conditions, is_scalar=self._is_scalar)


class Switch:
    """Runs the block of the first case whose condition is true, or else the default block.

    >>> step, rate = layers.fill_constant([1], "float32", 3.0), layers.create_global_var([1], 0.0, "float32")
    >>> with layers.Switch() as switch:
    ...     with switch.case(step < 5.0):
    ...         rate = layers.fill_constant([1], "float32", 0.01, out=rate)
    ...     with switch.default():
    ...         rate = layers.fill_constant([1], "float32", 0.1, out=rate)
    >>> fluid.Executor().run(fetch_list=[rate])
    [array([0.01], dtype=float32)]
    """

    def __init__(self, name: str | None = None) -> None:
        self.helper = LayerHelper("switch", name)
        self._open = False
        self._none: Variable | None = None
        """Whether no case so far is true."""

    def __enter__(self) -> Switch:
        self._open = True
        return self

    def __exit__(self, *exception: object) -> None:
        self._open = False

    def case(self, condition: Variable) -> contextlib.AbstractContextManager[None]:
        """Layers in the ``with`` run if `condition` is true and no earlier case was.

        Args:
            condition: one bool.
        """
        _check_condition(condition, "Switch.case: condition")
        refuse_tensor(condition, "Switch", "Python's if, or layers.cond and layers.case")
        if not self._open:
            raise ProgramError("Switch.case is to be called inside 'with Switch() as switch:'")
        before, otherwise = self._none, ops.logical_not(condition)
        self._none = otherwise if before is None else ops.logical_and(before, otherwise)
        return _conditional_block(condition if before is None else ops.logical_and(before, condition))

    def default(self) -> contextlib.AbstractContextManager[None]:
        """Layers in the ``with`` run if no case is true."""
        if not self._open or self._none is None:
            raise ProgramError("Switch.default is to be called inside 'with Switch() as switch:', after a case")
        return _conditional_block(self._none)


# ----------------------------------------------------------------------------------------------- functions as bodies
def _agree(a: Variable, b: Variable) -> bool:
    """Whether both variables have the same type, element type and, as far as known, shape."""
    return (
        a.type is b.type
        and a.dtype is b.dtype
        and a.ndim == b.ndim
        and all(x == y or -1 in (x, y) for x, y in zip(a.shape, b.shape, strict=True))
    )


def cond(
    pred: Variable, true_fn: Callable[[], Any] | None = None, false_fn: Callable[[], Any] | None = None, name: str | None = None
) -> Any:
    """The result of `true_fn` if `pred` (one bool) is true, else the result of `false_fn`.

    Args:
        pred: one bool.
        true_fn, false_fn: functions without arguments. Both are called while the program is built and append to their own blocks;
            only one block runs. They return a variable, nested lists, tuples and dicts of variables, or nothing: both the same
            structure, with the same shapes and dtypes. None stands for one that does and returns nothing. What `minimize` of an
            optimizer returns counts as nothing: ``lambda: optimizer.minimize(loss)`` trains where the branch runs.
        name: accepted and ignored.

    Raises:
        ProgramError: if the functions return different structures, shapes or dtypes.

    >>> x = fluid.dygraph.to_variable([3.0])
    >>> layers.cond(x > 0.0, lambda: x * 10.0, lambda: -x)
    Tensor([30.], shape=[1], dtype=float32)
    """
    _check_condition(pred, "cond: pred")
    for name, fn in (("true_fn", true_fn), ("false_fn", false_fn)):
        if fn is not None and not callable(fn):
            raise FluidTypeError(f"cond: {name} should be a function without arguments, not {fn!r}")
    return build_cond(pred, true_fn, false_fn)


@builds
def build_cond(pred: Variable, true_fn: Callable[[], Any] | None, false_fn: Callable[[], Any] | None) -> Any:
    """`cond` with checked arguments."""
    true_result = _branch(pred, true_fn)
    false_result = _branch(ops.logical_not(pred), false_fn)
    if structure(true_result[0]) != structure(false_result[0]):
        raise ProgramError(
            f"cond: true_fn returns {structure(true_result[0])} but false_fn returns {structure(false_result[0])}; "
            "both must return the same structure"
        )
    if not true_result[1]:
        return None
    mask = cast(pred, "int32")
    merged = []
    for index, (a, b) in enumerate(zip(true_result[1], false_result[1], strict=True)):
        if not _agree(a, b):
            raise ProgramError(
                f"cond: output {index} of true_fn is {a.describe()} but that of false_fn is {b.describe()}; "
                "both must have one shape and dtype"
            )
        merged.append(a.block.create_var(dtype=a.dtype))
        a.block.append_op("select_input", inputs={"X": [b, a], "Mask": mask}, outputs={"Out": merged[-1]})
    return rebuild(true_result[0], iter(merged))


def _branch(condition: Variable, fn: Callable[[], Any] | None) -> tuple[Any, list[Variable]]:
    """Call `fn` in a conditional block; return its result, and the outer variables that receive copies of its variables."""
    if fn is None:
        return None, []
    parent = default_main_program().current_block()
    fresh: list[str] = []
    with _conditional_block(condition, fresh):
        value = fn()
        if _is_of_minimize(value):
            value = None
        outs = []
        for item in flatten(value, "what a branch of cond returns"):
            if item.type is not VarType.LOD_TENSOR:
                raise ProgramError(f"a branch of cond cannot return {item.name} ({item.describe()}); it may write to it instead")
            out = parent.create_var(dtype=item.dtype, shape=item.shape)
            fresh.append(out.name)
            assign(item, out)
            outs.append(out)
    return value, outs


def _is_of_minimize(value: Any) -> bool:
    """Whether a value is the result of an optimizer's `minimize` or `apply_gradients`: ops, or ops and pairs."""
    ops_of = value[0] if isinstance(value, tuple) and len(value) == 2 else value
    return isinstance(ops_of, list) and bool(ops_of) and all(isinstance(op, Operator) for op in ops_of)


def case(
    pred_fn_pairs: Sequence[tuple[Variable, Callable[[], Any]]], default: Callable[[], Any] | None = None, name: str | None = None
) -> Any:
    """The result of the function in the first pair whose bool is true, else the result of `default`.

    As with `cond`, all functions return the same structure, shapes and dtypes.

    Args:
        pred_fn_pairs: pairs of one bool and a function without arguments.
        default: a function without arguments; by default the last pair's.
        name: accepted and ignored.

    Raises:
        FluidTypeError: if there is no pair, or one of them is none of a bool and a function.
        ProgramError: if the functions return different structures, shapes or dtypes.

    >>> x = fluid.dygraph.to_variable([3.0])
    >>> layers.case([(x < 1.0, lambda: x), (x < 5.0, lambda: x * 10.0)], default=lambda: x * 100.0)
    Tensor([30.], shape=[1], dtype=float32)
    """
    pairs = list(pred_fn_pairs)
    if not pairs or any(not isinstance(item, (tuple, list)) or len(item) != 2 or not callable(item[1]) for item in pairs):
        raise FluidTypeError(
            "case: pred_fn_pairs should be pairs of a bool Variable and a function without arguments, at least one"
        )
    if default is None:
        default = pairs.pop()[1]
    return _first_case(pairs, default)


def _first_case(pairs: Sequence[tuple[Variable, Callable[[], Any]]], default: Callable[[], Any]) -> Any:
    if not pairs:
        return default()
    (pred, fn), later_pairs = pairs[0], pairs[1:]
    return cond(pred, fn, lambda: _first_case(later_pairs, default))


def switch_case(
    branch_index: Variable,
    branch_fns: Mapping[int, Callable[[], Any]] | Sequence[Any],
    default: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:
    """The result of the function at index `branch_index`, a variable of one integer.

    Args:
        branch_index: an int32 or int64 variable of one element.
        branch_fns: functions by index: a dict, a list of pairs, or a list of functions for 0, 1, ...
        default: function for all other indices; by default the function of the largest index.
        name: accepted and ignored.

    Raises:
        ProgramError: if there is no function, or two have one index.

    >>> index, x = fluid.dygraph.to_variable([1]), fluid.dygraph.to_variable([3.0])
    >>> layers.switch_case(index, {0: lambda: x, 1: lambda: x * 10.0})
    Tensor([30.], shape=[1], dtype=float32)
    """
    check_variable(branch_index, "switch_case: branch_index")
    if isinstance(branch_fns, Mapping):
        pairs = list(branch_fns.items())
    else:
        pairs = [(item[0], item[1]) if isinstance(item, (tuple, list)) else (n, item) for n, item in enumerate(branch_fns)]
    if not pairs or len({index for index, _ in pairs}) < len(pairs) or any(not callable(fn) for _, fn in pairs):
        raise ProgramError(f"switch_case: branch_fns should be functions by distinct indices, at least one, not {branch_fns!r}")
    pairs.sort(key=lambda item: item[0])
    if default is None:
        default = pairs[-1][1]
    dtype = branch_index.dtype
    return case([(ops.equal(branch_index, fill_constant([1], dtype, index)), fn) for index, fn in pairs], default)


def while_loop(
    cond: Callable[..., Variable],
    body: Callable[..., Any],
    loop_vars: Sequence[Any],
    is_test: bool = False,
    name: str | None = None,
) -> Any:
    """Repeats ``loop_vars = body(*loop_vars)`` while ``cond(*loop_vars)`` is true; returns the last `loop_vars` as a list.

    Args:
        cond: returns one bool.
        body: returns values with the structure, dtypes and numbers of dimensions of its arguments. It writes to an array
            of tensors in place, and returns the same array.
        loop_vars: variables, or nested lists, tuples and dicts of them, which are not overwritten.
        is_test: whether to keep nothing for a gradient.

    Raises:
        FluidTypeError: if `cond` or `body` is no function, or `loop_vars` no list of variables.
        ProgramError: if `body` returns another structure, or `loop_vars` belong to several programs.

    >>> x = fluid.dygraph.to_variable([1.0])
    >>> layers.while_loop(lambda x: x < 100.0, lambda x: x * 3.0, [x])
    [Tensor([243.], shape=[1], dtype=float32)]
    """
    if not callable(cond) or not callable(body):
        raise FluidTypeError("while_loop: cond and body should be functions of the loop variables")
    if not isinstance(loop_vars, (list, tuple)) or not loop_vars:
        raise FluidTypeError("while_loop: loop_vars should be a list or tuple of Variables, at least one")
    first = flatten(loop_vars, "loop_vars of while_loop")
    foreign = next((var for var in first if var.block.program is not first[0].block.program), None)
    if foreign is not None:
        raise ProgramError(
            f"while_loop: loop_vars mixes {first[0].name} and {foreign.name}, which are of different programs, or one a tensor "
            "of eager mode: give variables of one program, or tensors"
        )
    return build_while_loop(cond, body, loop_vars, first, is_test, name)


@builds
def build_while_loop(
    cond: Callable[..., Variable],
    body: Callable[..., Any],
    loop_vars: Sequence[Any],
    first: Sequence[Variable],
    is_test: bool,
    name: str | None,
) -> Any:
    """`while_loop` with checked arguments; `first` are the variables in `loop_vars`."""
    carried = [var if var.type is VarType.LOD_TENSOR_ARRAY else assign(var) for var in first]
    state = rebuild(list(loop_vars), iter(carried))
    condition = cond(*state)
    _check_condition(condition, "while_loop: what cond returns")
    condition = assign(condition)
    loop = While(condition, is_test, name)
    with loop.block():
        value = body(*state)
        if not isinstance(value, (list, tuple)) or (len(state) == 1 and structure([value]) == structure(state)):
            value = [value]
        results = flatten(value, "what the body of while_loop returns")
        if structure(value) != structure(state):
            raise ProgramError(
                f"while_loop: body takes {structure(state)} but returns {structure(value)}; both must have the same structure"
            )
        for index, (old, new) in enumerate(zip(carried, results, strict=True)):
            if old.type is not new.type or old.dtype is not new.dtype or old.ndim != new.ndim:
                raise ProgramError(
                    f"while_loop: variable {index} goes into body as {old.describe()} but comes out as {new.describe()}; "
                    "dtype and number of dimensions must stay"
                )
            if old.type is VarType.LOD_TENSOR_ARRAY and new is not old:
                raise ProgramError(f"while_loop: body must write to the array {old.name} in place and return it, not {new.name}")
        names = {var.name for var in carried}
        # In a swap, one variable takes another's old value: copy it before it is overwritten.
        pairs = list(zip(carried, results, strict=True))
        pairs = [(old, assign(new) if new is not old and new.name in names else new) for old, new in pairs]
        for old, new in pairs:
            if new is not old:
                assign(new, old)
        assign(cond(*state), condition)
    return state


# -------------------------------------------------------------------------------------------------------- recurrence
class StaticRNN:
    """Runs a block once for each time step of sequences of the same length, ``[time, batch, ...]``.

    >>> sentence = fluid.data("sentence", [20, None, 64])
    >>> rnn = layers.StaticRNN()
    >>> with rnn.step():
    ...     word = rnn.step_input(sentence)
    ...     before = rnn.memory(shape=[-1, 128], batch_ref=word)
    ...     after = layers.fc([word, before], 128, act="tanh")
    ...     rnn.update_memory(before, after)
    ...     rnn.step_output(after)
    >>> word.shape, rnn().shape
    ((-1, 64), (20, -1, 128))
    """

    def __init__(self, name: str | None = None) -> None:
        self.helper = LayerHelper("static_rnn", name)
        self.seq_len: int | None = None
        self._block: Block | None = None
        self._inputs: list[Variable] = []
        self._memories: dict[str, tuple[Variable, Variable]] = {}
        """Name in the block -> (initial value, variable of the block)."""
        self._updates: dict[str, Variable] = {}
        self._outputs: list[Variable] = []
        self._results: list[Variable] | None = None

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Layers in the ``with`` make up one time step."""
        if self._block is not None:
            raise ProgramError(f"{self.helper.name} has its step already")
        with _new_block(self.helper.main_program) as block:
            self._block = block
            yield
            self._check()
            states = [self._state_name(name) for name in self._memories]
            outputs = [self._output_name(var) for var in self._outputs]
            reads, writes = outer_names(block)
            if writes:
                raise ProgramError(
                    f"the step of {self.helper.name} writes {writes[0]}, a variable from outside; use memory() and "
                    "update_memory() for what goes from step to step, and step_output() for what comes out"
                )
        self._append(block, reads, states, outputs)

    def _body(self, method: str) -> Block:
        block = self._block
        if block is None or self.helper.block is not block:
            raise ProgramError(f"StaticRNN.{method} is to be called inside 'with rnn.step():'")
        return block

    def _parent(self, method: str) -> Block:
        parent = self._body(method).parent
        assert parent is not None
        return parent

    def step_input(self, x: Variable) -> Variable:
        """The current step's slice of the sequence `x`, ``[time, ...]``.

        Args:
            x: ``[time, ...]``, made outside of the step; all have the same number of time steps.
        """
        block = self._body("step_input")
        check_variable(x, "StaticRNN.step_input: x")
        refuse_tensor(x, "StaticRNN", "Python's for, or layers.rnn with a cell")
        if x.ndim < 1:
            raise ProgramError(f"StaticRNN.step_input: {x.name} ({x.describe()}) has no time dimension")
        if x.block is block:
            raise ProgramError(f"StaticRNN.step_input: {x.name} is made in the step; make it before the block begins")
        if self.seq_len not in (None, -1) and x.shape[0] not in (-1, self.seq_len):
            raise ProgramError(
                f"StaticRNN.step_input: {x.name} has {x.shape[0]} time steps but {self._inputs[0].name} has {self.seq_len}"
            )
        if self.seq_len in (None, -1):
            self.seq_len = x.shape[0]
        if x.name in block.vars:
            return block.vars[x.name]
        self._inputs.append(x)
        # In files, the slice has the name of the sequence.
        return block.create_var(name=x.name, dtype=x.dtype, shape=x.shape[1:], stop_gradient=x.stop_gradient)

    def memory(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        batch_ref: Variable | None = None,
        init_value: float = 0.0,
        init_batch_dim_idx: int = 0,
        ref_batch_dim_idx: int = 1,
    ) -> Variable:
        """A variable that in each step holds what `update_memory` assigned to it in the step before.

        Args:
            init: its value in the first step; if None, give `shape` and `batch_ref`.
            shape: shape of its first value; the batch size is -1.
            batch_ref: a sequence or step input that has the batch size.
            init_value: what the first value is filled with, if `init` is None.
            init_batch_dim_idx: the dimension of `shape` that is the batch size.
            ref_batch_dim_idx: the batch dimension of the sequence; 0 is time.
        """
        block = self._body("memory")
        if init is None:
            if shape is None or batch_ref is None:
                raise ProgramError("StaticRNN.memory: give init, or shape and batch_ref")
            init = self._first_value(shape, batch_ref, init_value, init_batch_dim_idx, ref_batch_dim_idx)
        else:
            check_variable(init, "StaticRNN.memory: init")
            if init.block is block:
                raise ProgramError(f"StaticRNN.memory: init {init.name} is made in the step; it should come from outside")
        name = unique_name.generate(self.helper.name + "@mem")
        before = block.create_var(name=name, dtype=init.dtype, shape=init.shape)
        self._memories[name] = init, before
        return before

    def _first_value(self, shape: Sequence[int], batch_ref: Variable, value: float, index: int, ref_index: int) -> Variable:
        parent = self._parent("memory")
        check_variable(batch_ref, "StaticRNN.memory: batch_ref")
        sequence = parent.find_var(batch_ref.name)  # for a step input, the whole sequence
        if sequence is None:
            raise ProgramError(
                f"StaticRNN.memory: batch_ref {batch_ref.name} is made in the step; give a step input, or what comes from outside"
            )
        dtype = sequence.dtype
        init = parent.create_var(name=unique_name.generate(self.helper.name + "@memory_boot"), shape=shape, dtype=dtype)
        attrs = {"shape": [int(size) for size in shape], "dtype": int(dtype), "value": float(value)}
        attrs |= {"input_dim_idx": ref_index, "output_dim_idx": index}
        parent.append_op("fill_constant_batch_size_like", {"Input": sequence}, {"Out": init}, attrs)
        return init

    def update_memory(self, mem: Variable, var: Variable) -> None:
        """Makes the memory `mem` hold `var` in the next step.

        Args:
            mem: what `memory` returned.
            var: a variable of the step, of the same shape and type.
        """
        self._body("update_memory")
        check_variable(var, "StaticRNN.update_memory: var")
        if mem.name not in self._memories:
            raise ProgramError(f"StaticRNN.update_memory: {mem.name} is not a memory of {self.helper.name}")
        if not _agree(mem, var):
            raise ProgramError(
                f"StaticRNN.update_memory: the memory {mem.name} is {mem.describe()} but {var.name} is {var.describe()}"
            )
        self._updates[mem.name] = var

    def step_output(self, o: Variable) -> None:
        """Adds an output: `o` of every step, stacked along a new first dimension of time.

        Args:
            o: a variable of the step.
        """
        self._body("step_output")
        check_variable(o, "StaticRNN.step_output: o")
        self._outputs.append(o)

    def output(self, *outputs: Variable) -> None:
        """Calls `step_output` for each variable.

        Args:
            outputs: variables of the step.
        """
        for item in outputs:
            self.step_output(item)

    def _check(self) -> None:
        if not self._inputs:
            raise ProgramError(f"{self.helper.name} has no step_input, so how often to run its step is not known")
        for name in self._memories:
            if name not in self._updates:
                raise ProgramError(f"{self.helper.name}: the memory {name} is never updated; call update_memory in the step")

    def _written_name(self, var: Variable) -> str:
        """The name of `var`, or of a copy if no op of the block writes it."""
        block = self._body("step")
        if not any(var.name in op.output_arg_names for op in block.ops):
            var = assign(var)
        return var.name

    def _state_name(self, memory: str) -> str:
        return self._written_name(self._updates[memory])

    def _output_name(self, var: Variable) -> str:
        if var.name in {out.name for out in self._results or ()}:
            var = assign(var)
        name = self._written_name(var)
        step_output = self._body("step").var(name)
        shape = [self.seq_len if self.seq_len is not None else -1, *step_output.shape]
        # In files, the stacked outputs have the name of each step's output.
        out = self._parent("step").create_var(name=name, dtype=step_output.dtype, shape=shape)
        self._results = [*(self._results or ()), out]
        return name

    def _append(self, block: Block, reads: Sequence[str], states: list[str], outputs: list[str]) -> None:
        parent = block.parent
        assert parent is not None
        firsts = [init for init, _ in self._memories.values()]
        parent.append_op(
            "recurrent",
            inputs={"inputs": self._inputs, "initial_states": firsts, "parameters": list(reads)},
            outputs={"outputs": outputs, "step_scopes": _scopes(parent)},
            attrs={
                "has_states": bool(self._memories),
                "ex_states": list(self._memories),
                "states": states,
                "sub_block": block,
                "reverse": False,
                "is_train": True,
            },
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs of all steps, ``[time, ...]``: one variable, or a list of them.

        Args:
            args, kwargs: accepted and ignored.
        """
        if self._results is None or self.helper.block is self._block:
            raise ProgramError(f"{self.helper.name}() gives the outputs of its step, after the step; it has no step_output yet")
        return self._results[0] if len(self._results) == 1 else list(self._results)


# ------------------------------------------------------------------------------------------------------------ arrays
def increment(x: Variable, value: float = 1.0, in_place: bool = True) -> Variable:
    """`x` (one number) plus `value`, written to `x` itself if `in_place`.

    Args:
        x: one number, of an int or float type.
        value: a number, a whole one if `x` is of ints.
        in_place: whether to write to `x` itself.

    >>> layers.increment(fluid.dygraph.to_variable([1.0]), value=2.0)
    Tensor([3.], shape=[1], dtype=float32)
    """
    return apply("increment", {"X": x}, {"step": float(value)}, outputs={"Out": x if in_place else None})


@builds
def create_array(dtype: DTypeLike) -> Any:
    """An empty array of tensors; in eager mode, a Python list.

    Args:
        dtype: element type of its tensors.

    >>> array = layers.create_array("float32")
    >>> layers.array_write(layers.ones([2, 3], "float32"), layers.zeros([1], "int64"), array) is array
    True
    """
    helper = LayerHelper("array")
    return helper.create_variable(name=helper.name + ".out", type=VarType.LOD_TENSOR_ARRAY, dtype=dtype)


def _check_array(array: Any, where: str) -> None:
    check_variable(array, where)
    if array.type is not VarType.LOD_TENSOR_ARRAY:
        raise FluidTypeError(
            f"{where} should be an array of tensors, from create_array or array_write; {array.name} is {array.describe()}"
        )


@builds
def array_write(x: Variable, i: Variable, array: Variable | list[Any] | None = None) -> Any:
    """Writes `x` to index `i` (one int64) of `array`, by default a new one; returns the array.

    In eager mode the array is a list, which gets a copy of `x`.

    Args:
        x: a tensor.
        i: one int64, not below 0. The array grows as needed.
        array: what `create_array` or `array_write` returned; by default a new one.

    >>> x, index = layers.fill_constant([2], "float32", 1.5), layers.zeros([1], "int64")
    >>> array = layers.array_write(x, index)
    >>> fluid.Executor().run(fetch_list=[layers.array_read(array, index)])
    [array([1.5, 1.5], dtype=float32)]
    """
    check_variable(x, "array_write: x")
    helper = LayerHelper("array_write")
    if array is None:
        array = helper.create_variable(name=helper.name + ".out", type=VarType.LOD_TENSOR_ARRAY, dtype=x.dtype)
    else:
        _check_array(array, "array_write: array")
    helper.apply("write_to_array", {"X": x, "I": i}, outputs={"Out": array})
    return array


@builds
def array_read(array: Variable | list[Any], i: Variable) -> Variable:
    """The tensor at index `i` (one int64) of `array`.

    Args:
        array: what `create_array` or `array_write` returned.
        i: one int64, at which something was written.

    >>> index = layers.zeros([1], "int64")
    >>> array = layers.array_write(layers.ones([2, 3], "float32"), index)
    >>> layers.array_read(array, index).shape
    (2, 3)
    """
    _check_array(array, "array_read: array")
    return apply("read_from_array", {"X": array, "I": i}, layer="array_read")


@builds
def array_length(array: Variable | list[Any]) -> Variable:
    """The number of tensors in `array`: int64 of shape [1].

    Args:
        array: what `create_array` or `array_write` returned.

    >>> array = layers.array_write(layers.ones([2, 3], "float32"), layers.zeros([1], "int64"))
    >>> fluid.Executor().run(fetch_list=[layers.array_length(array)])
    [array([1])]
    """
    _check_array(array, "array_length: array")
    return constant(apply("lod_array_length", {"X": array}, layer="array_length"))


@builds
def tensor_array_to_tensor(
    input: Variable | list[Any], axis: int = 1, name: str | None = None, use_stack: bool = False
) -> tuple[Variable, Variable]:
    """The tensors in the array `input`, concatenated along `axis` or, with `use_stack`, stacked along a new dimension `axis`.

    Args:
        input: what `create_array` or `array_write` returned.
        axis: where the tensors are joined; negative numbers count from the end.
        use_stack: whether `axis` is a new dimension.

    Returns:
        The tensor, and the size of each entry along `axis`, int32 ``[entries]``; 1 where `use_stack` adds `axis` behind the last.

    >>> array = layers.array_write(layers.ones([2, 3], "float32"), layers.fill_constant([1], "int64", 0))
    >>> array = layers.array_write(layers.ones([2, 4], "float32"), layers.fill_constant([1], "int64", 1), array)
    >>> fluid.Executor().run(fetch_list=[layers.tensor_array_to_tensor(array, axis=1)[1]])
    [array([3, 4], dtype=int32)]
    """
    _check_array(input, "tensor_array_to_tensor: input")
    out, sizes = apply_many("tensor_array_to_tensor", {"X": input}, {"axis": axis, "use_stack": use_stack}, name=name)
    return out, constant(sizes)
