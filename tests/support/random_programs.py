"""Random programs, made from a list of instructions: numbers that choose an operation and its variables.

So a program that fails shrinks to a short one. `test_random_programs` draws instructions with hypothesis, `attack` by seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numeric import assert_gradients, dot, interpret, interpreter

import fluid
from fluid import layers
from fluid.executor.executor import Executor
from fluid.executor.runtime.scope import Scope
from fluid.formats.text import parse_program_text, program_to_string
from fluid.ir.program import Program, Variable
from fluid.ir.versions import BlockVersions
from fluid.transform.pruning import prune

__all__ = [
    "KINDS",
    "STRAIGHT",
    "Instruction",
    "RandomProgram",
    "assert_same_bits",
    "check_gradients",
    "check_runs",
    "check_second_order",
    "frozen_values",
]

Instruction = tuple[int, int, int, int]

SHAPES = ((2, 3), (3,), (1,), (3, 3), (2, 3))
"""Of the variables that are fed."""

SMOOTH: list[tuple[str, dict[str, Any]]] = [
    *((op_type, {}) for op_type in ("gelu", "erf", "softsign", "tanh_shrink", "stanh", "swish", "logsigmoid", "cos", "atan")),
    *((op_type, {}) for op_type in ("mish", "silu", "expm1", "sinh", "cosh", "asinh", "exp")),
    ("pow", {"factor": 3.0}),
    ("scale", {"scale": -0.5, "bias": 1.0, "bias_after_scale": False}),
]
"""Ops that have derivatives of every order, and stay moderate for moderate numbers."""


class RandomProgram:
    """A program made of instructions, with what to feed it.

    `frozen` holds values of variables through which no gradient flows; they are fed instead of computed, so that
    differences do not see through them either.
    """

    def __init__(self, instructions: Sequence[Instruction], frozen: Mapping[str, Any] | None = None) -> None:
        self.program = Program()
        self.block = self.program.global_block()
        self.frozen = frozen
        self.feed: dict[str, Any] = {}
        self.stopped: list[str] = []
        self.fixed: set[str] = set()
        rng = np.random.default_rng(len(instructions))
        self.inputs = [self._data(f"in{i}", rng.uniform(-1, 1, shape)) for i, shape in enumerate(SHAPES)]
        self.vars = list(self.inputs)
        for name, value in (("no", False), ("yes", True)):
            self.feed[name] = np.array([value])
            self.block.create_var(name=name, shape=[1], dtype="bool", is_data=True, stop_gradient=True)
        with fluid.unique_name.guard():
            for kind, *choices in instructions:
                KINDS[kind](self, *choices)

    # -- making ops
    def _data(self, name: str, value: Any) -> Variable:
        self.feed[name] = np.asarray(value, "float64")
        return self.block.create_var(name=name, shape=self.feed[name].shape, dtype="float64", is_data=True)

    def pick(self, choice: int) -> Variable:
        return self.vars[choice % len(self.vars)]

    def among(self, choice: int, accept: Callable[[Variable], bool]) -> Variable | None:
        found = [var for var in self.vars if accept(var)]
        return found[choice % len(found)] if found else None

    def op(
        self, op_type: str, inputs: Mapping[str, Any], outputs: Sequence[str] | Mapping[str, Any] = ("Out",), **attrs: Any
    ) -> list[Any]:
        """Append an op with new outputs or the given ones; outputs in the first slot become available to later instructions."""
        if not isinstance(outputs, Mapping):
            outputs = {slot: self.block.create_var(name=f"v{len(self.block.vars)}_{slot}") for slot in outputs}
        self.block.append_op(op_type, inputs, outputs, attrs)
        first = next(iter(outputs.values()))
        for var in first if isinstance(first, list) else [first]:
            if not any(var is known for known in self.vars):
                self.vars.append(var)
        return list(outputs.values())

    # -- instructions
    def unary(self, a: int, b: int, c: int) -> None:
        op_type = ("tanh", "sigmoid", "sin", "softplus", "square")[b % 5]
        self.op(op_type, {"X": self.bounded(a)})

    def bounded(self, a: int) -> Variable:
        """A variable whose values stay moderate: so many products would not."""
        x = self.pick(a)
        return x if self.is_input(x) else self.op("tanh", {"X": x})[0]

    def add(self, a: int, b: int, c: int) -> None:
        x, y = self.pair(a, b)
        self.op(("elementwise_add", "elementwise_sub")[c % 2], {"X": x, "Y": y})

    def multiply(self, a: int, b: int, c: int) -> None:
        x, y = self.pair(a, b)
        out = self.op("elementwise_mul", {"X": x, "Y": y})[0]
        self.op("tanh", {"X": out})

    def divide(self, a: int, b: int, c: int) -> None:
        x, y = self.pair(a, b)
        square = self.op("square", {"X": y})[0]
        more = self.op("scale", {"X": square}, scale=1.0, bias=1.5)[0]
        self.op("elementwise_div", {"X": x, "Y": more})

    def pair(self, a: int, b: int) -> tuple[Variable, Variable]:
        """Two variables, possibly the same; the second broadcasts to the first."""
        x = self.pick(a)
        y = self.among(b, lambda v: v.shape == x.shape or v.shape == (1,) or v.shape == x.shape[-1:])
        return x, y if y is not None else x

    def matmul(self, a: int, b: int, c: int) -> None:
        x = self.among(a, lambda v: len(v.shape) == 2)
        y = None if x is None else self.among(b, lambda v: len(v.shape) == 2 and v.shape[0] == x.shape[1])
        if x is not None and y is not None:
            self.op(("matmul_v2", "mul")[c % 2], {"X": x, "Y": y})

    def reduce(self, a: int, b: int, c: int) -> None:
        op_type = ("reduce_sum", "reduce_mean")[b % 2]
        x = self.pick(a)
        if c % 3 == 0:
            self.op(op_type, {"X": x}, reduce_all=True)
        else:
            self.op(op_type, {"X": x}, dim=[c % len(x.shape)], keep_dim=c % 2 == 0)

    def move(self, a: int, b: int, c: int) -> None:
        x = self.among(a, lambda v: len(v.shape) == 2)
        if x is None:
            return
        if b % 4 == 0:
            self.op("transpose2", {"X": x}, ("Out", "XShape"), axis=[1, 0])
        elif b % 4 == 1:
            self.op("reshape2", {"X": x}, ("Out", "XShape"), shape=[-1, x.shape[0]])
        elif b % 4 == 2:
            self.op("slice", {"Input": x}, axes=[1], starts=[c % x.shape[1]], ends=[100])
        else:
            self.op("softmax", {"X": x})

    def join(self, a: int, b: int, c: int) -> None:
        x = self.pick(a)
        y = self.among(b, lambda v: v.shape == x.shape)
        if c % 2:
            self.op("sum", {"X": [x, y, x][: 2 + c % 2]})
        else:
            self.op("concat", {"X": [x, y]}, axis=len(x.shape) - 1)

    def part(self, a: int, b: int, c: int) -> None:
        """Two outputs; later instructions may use one, both or none."""
        x = self.pick(a)
        if x.shape[0] == 1:
            return
        ends = [self.block.create_var(name=f"v{len(self.block.vars)}_{i}_{len(self.vars)}") for i in range(2)]
        self.op("split", {"X": x}, {"Out": ends}, axis=0, sections=[1, x.shape[0] - 1])

    def normalize(self, a: int, b: int, c: int) -> None:
        x = self.among(a, lambda v: len(v.shape) == 2 and v.shape[1] > 1)
        if x is not None:
            self.op("layer_norm", {"X": x}, ("Y", "Mean", "Variance"), epsilon=0.5)

    def overwrite(self, a: int, b: int, c: int) -> None:
        """Another value under a name that was read, perhaps, before."""
        y = self.among(b, lambda v: v.name not in self.fixed)
        if y is None:
            return
        x = self.among(a, lambda v: v.shape == y.shape)
        if c % 3 == 0:
            self.op("assign", {"X": x}, {"Out": y})
        elif c % 3 == 1:
            self.op("tanh", {"X": x}, {"Out": y})
        else:
            self.op("scale", {"X": y}, {"Out": y}, scale=0.5, bias=0.25)

    # -- instructions of the families of ops
    def matrix(self, a: int) -> Variable | None:
        """A variable of two dimensions that are known."""
        return self.among(a, lambda v: len(v.shape) == 2 and min(v.shape) > 0)

    def integers(self, values: Sequence[int]) -> Variable:
        """A constant of int64."""
        out = self.block.create_var(name=f"v{len(self.block.vars)}_ids", stop_gradient=True)
        self.block.append_op("assign_value", {}, {"Out": out}, {"shape": [len(values)], "dtype": 3, "int64_values": [*values]})
        return out

    def smooth(self, a: int, b: int, c: int) -> None:
        op_type, attrs = SMOOTH[(b + 12 * c) % len(SMOOTH)]
        self.op(op_type, {"X": self.bounded(a)}, **attrs)

    def above_zero(self, a: int, b: int, c: int) -> None:
        """An op that takes only positive numbers."""
        square = self.op("square", {"X": self.bounded(a)})[0]
        more = self.op("scale", {"X": square}, scale=1.0, bias=0.5)[0]
        op_type, attrs = (("log", {}), ("sqrt", {}), ("rsqrt", {}), ("reciprocal", {}), ("pow", {"factor": 1.5}))[b % 5]
        self.op(op_type, {"X": more}, **attrs)

    def reduce_more(self, a: int, b: int, c: int) -> None:
        x = self.bounded(a)
        dim, keep = [c % len(x.shape)], c % 2 == 0
        if b % 4 == 0:
            self.op("logsumexp", {"X": x}, axis=dim, keepdim=keep)
        elif b % 4 == 1:
            self.op("reduce_prod", {"X": x}, dim=dim, keep_dim=keep)
        elif b % 4 == 2:
            self.op("squared_l2_norm", {"X": x})
        else:
            self.op("cumsum", {"X": x}, axis=dim[0], reverse=keep, exclusive=b > 6)

    def rearrange(self, a: int, b: int, c: int) -> None:
        """Parts of a matrix, in another order, or with something around them."""
        x = self.matrix(a)
        if x is None:
            return
        rows, columns = x.shape
        ids = self.integers([c % rows, 0, (b + c) % rows])
        made: list[Callable[[], Any]] = [
            lambda: self.op("flip", {"X": x}, axis=[c % 2]),
            lambda: self.op("roll", {"X": x}, shifts=[c - 5], axis=[b % 2]),
            lambda: self.op("tril_triu", {"X": x}, diagonal=c % 3 - 1, lower=c % 2 == 0),
            lambda: self.op("gather", {"X": x, "Index": ids}),
            lambda: self.op("index_select", {"X": x, "Index": self.integers([c % columns] * 2)}, dim=1),
            lambda: self.op("strided_slice", {"Input": x}, axes=[1], starts=[-1], ends=[-columns - 1], strides=[-1 - c % 2]),
            lambda: self.op("slice", {"Input": x}, axes=[0, 1], starts=[-1, c % columns], ends=[100, columns], decrease_axis=[0]),
            lambda: self.op("pad", {"X": x}, paddings=[c % 2, 0, 0, b % 3], pad_value=0.5),
            lambda: self.op("tile", {"X": x}, repeat_times=[1, 2]),
            lambda: self.op("stack", {"X": [x, x]}, ("Y",), axis=c % 3),
            lambda: self.op("unsqueeze2", {"X": x}, ("Out", "XShape"), axes=[c % 3]),
            lambda: self.op("set_value", {"Input": x, "ValueTensor": self.inputs[2]}, **self.row(c, x)),
            lambda: self.op("diag_v2", {"X": x}, offset=0),
        ]
        made[(b + 12 * (c % 2)) % len(made)]()

    @staticmethod
    def row(number: int, x: Variable) -> dict[str, Any]:
        """Attributes that name a row of a matrix as the region to set."""
        start = number % x.shape[0]
        return {"axes": [0], "starts": [start], "ends": [start + 1], "steps": [1], "dtype": 6}

    def products(self, a: int, b: int, c: int) -> None:
        x = self.matrix(a)
        y = self.matrix(b)
        if x is None or y is None or max(*x.shape, *y.shape) > 12:
            return
        if c % 3 == 0:
            self.op("kron", {"X": x, "Y": y})
        elif x.shape == y.shape:
            self.op("matmul_v2", {"X": x, "Y": y}, trans_x=c % 3 == 1, trans_y=c % 3 == 2)
        elif x.shape[1] == y.shape[1]:
            made = [self.block.create_var(name=f"v{len(self.block.vars)}_{i}") for i in range(5)]
            outputs = {"Out": made[:1], "InnerCache": made[1:3], "XShape": made[3:]}
            self.op("einsum", {"Operands": [x, y]}, outputs, equation="ij,kj->ik")

    def losses(self, a: int, b: int, c: int) -> None:
        x = self.among(a, lambda v: len(v.shape) == 2 and v.shape[1] > 1)
        if x is None:
            return
        if b % 4 == 0:
            self.op("log_softmax", {"X": x})
        elif b % 4 == 1:
            ids = self.op("unsqueeze2", {"X": self.integers([(c + i) % x.shape[1] for i in range(x.shape[0])])}, axes=[1])[0]
            self.vars.pop()
            self.op("softmax_with_cross_entropy", {"Logits": x, "Label": ids}, ("Loss", "Softmax"))
        elif b % 4 == 2:
            labels = self.op("softmax", {"X": x})[0]
            self.op("softmax_with_cross_entropy", {"Logits": x, "Label": labels}, ("Loss", "Softmax"), soft_label=True)
        else:
            self.op("norm", {"X": x}, ("Out", "Norm"), axis=1, epsilon=0.5)

    def images(self, a: int, b: int, c: int) -> None:
        """A matrix as an image, with another as a filter or by itself."""
        x = self.among(a, lambda v: len(v.shape) == 2 and min(v.shape) > 1)
        if x is None:
            return
        image = self.op("reshape2", {"X": x}, ("Out", "XShape"), shape=[1, 1, *x.shape])[0]
        if b % 3 == 0:
            weight = self.op("reshape2", {"X": self.inputs[c % 2 * 4]}, ("Out", "XShape"), shape=[1, 1, 2, 3])[0]
            self.op("conv2d", {"Input": image, "Filter": weight}, ("Output",), paddings=[1, 1], strides=[1 + c % 2, 1])
        elif b % 3 == 1:
            self.op("pool2d", {"X": image}, pooling_type="avg", ksize=[2, 2], paddings=[c % 2, 0], exclusive=c % 3 == 0)
        else:
            size = {"out_h": 3, "out_w": 2 + c % 3, "align_corners": c % 2 == 0}
            self.op(("bilinear_interp", "bicubic_interp")[c % 2], {"X": image}, **size)

    def rows_of_a_table(self, a: int, b: int, c: int) -> None:
        x = self.matrix(a)
        if x is not None:
            ids = self.integers([c % x.shape[0], 0, b % x.shape[0], 0])
            self.op("lookup_table_v2", {"W": x, "Ids": ids}, padding_idx=0 if c % 4 == 0 else -1)

    def sequences(self, a: int, b: int, c: int) -> None:
        """Rows of a matrix as two or three sequences; one may be empty."""
        x = self.matrix(a)
        if x is None:
            return
        rows, width = x.shape
        offsets = [0, *([0] if c % 2 else []), b % (rows + 1), rows]
        x = self.op("lod_reset", {"X": x}, target_lod=offsets)[0]
        if b % 7 < 4:
            pooled = self.op("sequence_pool", {"X": x}, ("Out", "MaxIndex"), pooltype=("SUM", "AVERAGE", "SQRT", "LAST")[b % 7])[
                0
            ]
            self.vars = [var for var in self.vars if var is not pooled]  # its number of rows is not known
            self.op("reduce_sum", {"X": pooled}, dim=[0])
        elif b % 7 == 4:
            self.op("sequence_reverse", {"X": x}, ("Y",))
        elif b % 7 == 5:
            y = self.among(c, lambda v: len(v.shape) == 2 and v.shape[0] == 2 * width)
            weight = y if y is not None else self.op("concat", {"X": [self.square(x), self.square(x)]}, axis=0)[0]
            self.op("sequence_conv", {"X": x, "Filter": weight}, contextStart=c % 3 - 1, contextLength=2, contextStride=1)
        else:
            one = self.op("slice", {"Input": x}, axes=[1], starts=[0], ends=[1])[0]
            self.op("sequence_softmax", {"X": one})

    def square(self, x: Variable) -> Variable:
        """The products of the columns of a matrix."""
        return self.op("matmul_v2", {"X": x, "Y": x}, trans_x=True)[0]  # type: ignore[no-any-return]

    def increment(self, a: int, b: int, c: int) -> None:
        y = self.among(b, lambda v: v.name not in self.fixed and v.shape == (1,))
        if y is not None:
            self.op("increment", {"X": y}, {"Out": y}, step=0.5)

    def stop(self, a: int, b: int, c: int) -> None:
        """A value through which no gradient flows."""
        name = f"stopped{len(self.stopped)}"
        self.stopped.append(name)
        self.fixed.add(name)
        if self.frozen is not None:
            self.vars.append(self._data(name, self.frozen[name]))
            return
        var = self.block.create_var(name=name, stop_gradient=True)
        self.op("sigmoid", {"X": self.pick(a)}, {"Out": var})

    # -- instructions that make blocks
    def branch(self, a: int, b: int, c: int) -> None:
        """One of two formulas, each with inputs that the other does not read."""
        x, y = self.pair(a, b)
        pred = self.block.var(("no", "yes")[c % 2])
        with fluid.program_guard(self.program):
            out = layers.cond(
                pred,
                lambda: layers.tanh(layers.elementwise_mul(x, y)),
                lambda: layers.scale(x, scale=0.5) if c % 3 else layers.elementwise_add(layers.sin(x), y),
            )
        self.vars.append(out)

    def overwriting_branch(self, a: int, b: int, c: int) -> None:
        """A branch that writes to a variable from outside, if it runs."""
        y = self.among(b, lambda v: v.name not in self.fixed)
        if y is None:
            return
        x = self.among(a, lambda v: v.shape == y.shape)

        def overwrite() -> None:
            layers.assign(layers.tanh(layers.elementwise_mul(x, y)), y)

        with fluid.program_guard(self.program):
            layers.cond(self.block.var(("no", "yes")[c % 2]), overwrite)

    def loop(self, a: int, b: int, c: int) -> None:
        """A loop of 0 to 3 trips that carries a value, and adds up another."""
        x, y = self.pair(a, b)
        with fluid.program_guard(self.program):
            limit = layers.fill_constant([1], "int64", c % 4)

            def body(i: Variable, carried: Variable, total: Variable) -> list[Variable]:
                moved = layers.tanh(layers.elementwise_add(layers.elementwise_mul(carried, y), layers.scale(x, scale=0.5)))
                return [layers.increment(i, in_place=False), moved, layers.elementwise_add(total, layers.square(moved))]

            start = layers.fill_constant([1], "int64", 0)
            _, carried, total = layers.while_loop(lambda i, *_: layers.less_than(i, limit), body, [start, x, layers.sin(x)])
        self.vars += [carried, total]

    def array(self, a: int, b: int, c: int) -> None:
        """A loop that stores its values in an array; one of them is read afterwards."""
        x, y = self.pair(a, b)
        with fluid.program_guard(self.program):
            index = layers.fill_constant([1], "int64", 0)
            limit = layers.fill_constant([1], "int64", 1 + c % 3)
            kept = layers.array_write(layers.tanh(x), index)
            running = layers.less_than(index, limit)
            loop = layers.While(running)
            with loop.block():
                last = layers.array_read(kept, index)
                layers.increment(index, 1)
                layers.array_write(layers.sin(layers.elementwise_add(last, y)), index, kept)
                layers.less_than(index, limit, cond=running)
            self.vars.append(layers.array_read(kept, layers.fill_constant([1], "int64", b % (2 + c % 3))))

    def recurrent(self, a: int, b: int, c: int) -> None:
        """Steps over the rows of a matrix, from first to last or the other way, with a memory."""
        x = self.among(a, lambda v: len(v.shape) == 2)
        if x is None:
            return
        y = self.among(b, lambda v: v.shape == x.shape[1:])
        with fluid.program_guard(self.program):
            first = y if y is not None else layers.reduce_mean(x, dim=0)
            rnn = layers.StaticRNN()
            with rnn.step():
                memory = rnn.memory(init=first)
                moved = layers.tanh(layers.elementwise_add(layers.elementwise_mul(rnn.step_input(x), memory), first))
                rnn.update_memory(memory, moved)
                rnn.step_output(layers.square(moved) if c % 2 else moved)
            self.vars.append(rnn())

    # -- results
    @property
    def targets(self) -> list[Variable]:
        """The last two different variables made."""
        return [var for var in self.vars[-2:] if not self.is_input(var)] or self.vars[-1:]

    def is_input(self, var: Variable) -> bool:
        return any(var is one for one in self.inputs)


KINDS: list[Callable[..., None]] = [
    RandomProgram.add,
    RandomProgram.multiply,
    RandomProgram.unary,
    RandomProgram.overwrite,
    RandomProgram.matmul,
    RandomProgram.reduce,
    RandomProgram.move,
    RandomProgram.join,
    RandomProgram.part,
    RandomProgram.divide,
    RandomProgram.normalize,
    RandomProgram.increment,
    RandomProgram.stop,
    RandomProgram.smooth,
    RandomProgram.above_zero,
    RandomProgram.reduce_more,
    RandomProgram.rearrange,
    RandomProgram.products,
    RandomProgram.losses,
    RandomProgram.images,
    RandomProgram.rows_of_a_table,
    RandomProgram.sequences,
]
STRAIGHT = len(KINDS)
KINDS += [
    RandomProgram.branch,
    RandomProgram.overwriting_branch,
    RandomProgram.loop,
    RandomProgram.array,
    RandomProgram.recurrent,
]


def frozen_values(made: RandomProgram) -> dict[str, Any]:
    return dict(zip(made.stopped, interpret(made.program, made.feed, made.stopped), strict=True))


def check_gradients(instructions: list[Instruction]) -> None:
    made = RandomProgram(instructions)
    fixed = RandomProgram(instructions, frozen_values(made))
    run = interpreter(fixed.program, [var.name for var in made.targets])

    def objective(feed: dict[str, Any]) -> float:
        return sum(float(value.sum()) for value in run(feed))

    grads = fluid.gradients(made.targets, made.inputs)
    found = interpret(made.program, made.feed, grads)
    gradients = {var.name: np.zeros(var.shape) if value is None else value for var, value in zip(made.inputs, found, strict=True)}
    assert_gradients(objective, fixed.feed, gradients, np.random.default_rng(7), tolerance=5)


def check_second_order(instructions: list[Instruction]) -> None:
    instructions = [instruction for instruction in instructions if KINDS[instruction[0]] is not RandomProgram.stop]
    made = RandomProgram(instructions)
    first = [grad for grad in fluid.gradients(made.targets, made.inputs) if grad is not None]
    if not first:
        return
    before = made.program.clone()
    values = interpret(before, made.feed, first)
    rng = np.random.default_rng(3)
    weights = [made._data(f"weight{i}", rng.standard_normal(value.shape)) for i, value in enumerate(values)]
    second = fluid.gradients(first, made.inputs, weights)
    run = interpreter(before, first)

    def objective(feed: dict[str, Any]) -> float:
        return sum(dot(value, feed[w.name]) for value, w in zip(run(feed), weights, strict=True))

    found = interpret(made.program, made.feed, second)
    gradients = {var.name: np.zeros(var.shape) if value is None else value for var, value in zip(made.inputs, found, strict=True)}
    assert_gradients(objective, made.feed, gradients, rng, tolerance=20)


def assert_same_bits(found: Sequence[Any], expected: Sequence[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        assert np.array_equal(one, other)


def check_runs(instructions: list[Instruction], chosen: int) -> None:
    """Planned or not, pruned or not, from the wire or from text: the same bits."""
    made = RandomProgram(instructions)
    grads = [grad for grad in fluid.gradients(made.targets, made.inputs) if grad is not None]
    fetch = [var.name for var in [*made.targets, *grads]]
    expected = interpret(made.program, made.feed, fetch)
    data, text = made.program.serialize_to_string(), program_to_string(made.program)
    from_wire, from_text = Program.parse_from_string(data), parse_program_text(text)
    assert from_wire.serialize_to_string() == data
    assert program_to_string(from_text) == text
    subset = [i for i in range(len(fetch)) if chosen >> i & 1]
    executor, scope = Executor(), Scope()
    for _ in range(2):
        assert_same_bits(executor.run(made.program, made.feed, fetch, scope=scope), expected)
        pruned = executor.run(made.program, made.feed, [fetch[i] for i in subset], scope=scope)
        assert_same_bits(pruned, [expected[i] for i in subset])
    assert_same_bits(executor.interpret(from_wire, made.feed, fetch, Scope()), expected)
    assert_same_bits(executor.interpret(from_text, made.feed, fetch, Scope()), expected)
    parts = [fetch[i] for i in subset]
    versions = BlockVersions(made.program.global_block())
    overwritten = versions.last.keys() - versions.read_first  # before anything reads it: the op that does so is cut
    feed = {name: value for name, value in made.feed.items() if name not in overwritten}
    results = executor.interpret(prune(made.program, parts, feed), feed, parts, Scope())
    assert_same_bits(results, [expected[i] for i in subset])
