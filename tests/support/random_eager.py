"""Random eager programs, the same for Fluid and for torch: ops, writes in place, hooks, frozen leaves, functions of one's own.

A program is data: `steps` names what is done with which of the values so far. `difference` runs it with both, and says where they
differ in values, gradients, what hooks saw, or in what they refuse.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fluid import dygraph
from fluid.dygraph import Tensor, ops
from fluid.errors import BackwardError

SIDE = 3
_Function = Callable[..., Any]


# ----------------------------------------------------------------------------------------------------------- two libraries
class _OurCube(dygraph.PyLayer):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x * 0.1

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        (x,) = ctx.saved_tensor()
        return dy * x * x * 0.3


class _OurSame(dygraph.PyLayer):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return dy * 3.0


class _OurHalf(dygraph.PyLayer):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x.mul_(0.5)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return dy * 0.5


class _TheirCube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x * 0.1

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        (x,) = ctx.saved_tensors
        return dy * x * x * 0.3


class _TheirSame(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()  # there it would be a view

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return dy * 3.0


class _TheirHalf(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x.mul_(0.5)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        return dy * 0.5


class Ours:
    """Fluid's spelling of operations."""

    cube, same, half = _OurCube.apply, _OurSame.apply, _OurHalf.apply
    no_grad, backward = dygraph.no_grad, staticmethod(dygraph.backward)
    errors = (BackwardError,)

    def tensor(self, array: Any, wanted: bool) -> Any:
        return Tensor(array, "float64", requires_grad=wanted)

    def join(self, x: Any, y: Any) -> Any:
        return ops.concat([x, y], axis=0)

    def greater(self, x: Any, y: Any) -> Any:
        return ops.elementwise_max(x, y)

    def where(self, x: Any, y: Any) -> Any:
        return ops.where(x > 0.0, x, y)

    def modulus(self, x: Any) -> Any:
        return x.astype("complex128").abs().astype("float64")

    def grad(self, y: Any, xs: Any) -> Any:
        return dygraph.grad(y, xs, create_graph=True, allow_unused=True)


class Theirs:
    """The same of torch. Slices and such are copied, since they are copies in Fluid."""

    cube, same, half = _TheirCube.apply, _TheirSame.apply, _TheirHalf.apply
    no_grad, backward = torch.no_grad, staticmethod(torch.autograd.backward)
    errors = (RuntimeError,)

    def tensor(self, array: Any, wanted: bool) -> Any:
        return torch.tensor(array, dtype=torch.float64, requires_grad=wanted)

    def join(self, x: Any, y: Any) -> Any:
        return torch.cat([x, y], 0)

    def greater(self, x: Any, y: Any) -> Any:
        return torch.maximum(x, y)

    def where(self, x: Any, y: Any) -> Any:
        return torch.where(x > 0.0, x, y)

    def modulus(self, x: Any) -> Any:
        return x.to(torch.complex128).abs()

    def grad(self, y: Any, xs: Any) -> Any:
        return torch.autograd.grad(y, xs, create_graph=True, allow_unused=True)


# ------------------------------------------------------------------------------------------------------------------- steps
NEW: dict[str, _Function] = {
    "add": lambda f, x, y: x + y,
    "sub": lambda f, x, y: x - y * 0.5,
    "mul": lambda f, x, y: x * y,
    "div": lambda f, x, y: x * (1.0 / (y * y + 1.0)),  # whose rule reads its result, torch's its arguments
    "matmul": lambda f, x, y: (x @ y) * 0.3,
    "tanh": lambda f, x, y: x.tanh(),
    "sigmoid": lambda f, x, y: x.sigmoid(),
    "exp": lambda f, x, y: (x * 0.1).exp(),
    "square": lambda f, x, y: (x * 0.3) ** 2.0,
    "row": lambda f, x, y: x + y.sum(0) * 0.1,
    "mean": lambda f, x, y: x * y.mean(),
    "flip": lambda f, x, y: x.transpose(1, 0) * 1.0,
    "join": lambda f, x, y: f.join(x, y)[1 : 1 + SIDE] * 1.0,
    "greater": lambda f, x, y: f.greater(x * 1.1, y * 0.9 + 0.07),  # without ties, which the two share out in other ways
    "where": lambda f, x, y: f.where(x, y),
    "cut": lambda f, x, y: f.join(x[1:], y[:1]),
    "element": lambda f, x, y: x * y[1, 2],
    "relu": lambda f, x, y: (x + 0.1).relu() * x,
    "log": lambda f, x, y: (x * x + 1.0).log(),
    "reshape": lambda f, x, y: x.reshape(SIDE * SIDE).reshape(SIDE, SIDE) + y,
    "detached": lambda f, x, y: x * y.detach(),
    "alias": lambda f, x, y: x.detach(),
    "clone": lambda f, x, y: x.clone(),
    "cube": lambda f, x, y: f.cube(x),
    "same": lambda f, x, y: f.same(x),
    "modulus": lambda f, x, y: f.modulus(x),
}
"""Steps that make a value of two."""


def _set_row(f: Any, x: Any, y: Any) -> None:
    x[1] = y[0]


IN_PLACE: dict[str, _Function] = {
    "add_": lambda f, x, y: x.add_(y),
    "sub_": lambda f, x, y: x.sub_(y),
    "mul_": lambda f, x, y: x.mul_(y),
    "scale_": lambda f, x, y: x.mul_(0.5),
    "tanh_": lambda f, x, y: x.tanh_(),
    "set": _set_row,
    "half": lambda f, x, y: f.half(x),
}
"""Steps that change the first of two values; not of leaves that require a gradient."""
AROUND = ("hook", "halving hook", "node hook", "retain", "accumulated", "freeze", "unrecorded")
"""Steps that change what happens in backward."""
Step = tuple[str, int, int]


def random_steps(seed: int) -> tuple[np.ndarray[Any, Any], list[bool], list[Step]]:
    """The elements of the leaves, which of them require a gradient, and the steps."""
    choose = random.Random(seed)
    leaves = np.random.default_rng(seed).standard_normal((4, SIDE, SIDE))
    wanted = [number == 0 or choose.random() < 0.7 for number in range(4)]
    steps: list[Step] = []
    count = 4
    for _ in range(choose.randint(4, 16)):
        kind = choose.random()
        names = list(NEW) if kind < 0.6 else list(IN_PLACE) if kind < 0.8 else list(AROUND)
        name = choose.choice(names)
        if name == "modulus" and choose.random() < 0.7:
            name = "tanh"
        steps.append((name, choose.randrange(max(0, count - 5), count), choose.randrange(count)))
        count += name in NEW
    return leaves, wanted, steps


def _apply_hook(name: str, x: Any, number: int, seen: dict[int, list[Any]]) -> None:
    def see(what: Any) -> None:
        seen.setdefault(number, []).append(np.asarray(what).copy())

    if not x.requires_grad:
        return
    if name == "hook":
        x.register_hook(lambda grad: see(grad.detach()))
    elif name == "halving hook":
        x.register_hook(lambda grad: grad * 0.5)
    elif name == "retain":
        x.retain_grad()
    elif x.is_leaf:
        if name == "accumulated":  # torch also calls the hooks of leaves that were frozen
            x.register_post_accumulate_grad_hook(lambda leaf: see(leaf.grad.detach()) if leaf.requires_grad else None)
        elif name == "freeze":
            x.requires_grad_(False)
    elif name == "node hook":
        x.grad_fn.register_hook(lambda computed, received: see(received[0].detach()))


def run(f: Any, seed: int) -> tuple[dict[str, Any], str]:
    """The results of a program by name, and the reason of a refusal: none, "in place" or "complex"."""
    arrays, wanted, steps = random_steps(seed)
    leaves = [f.tensor(array, want) for array, want in zip(arrays, wanted, strict=True)]
    values, result = list(leaves), {}
    seen: dict[int, list[Any]] = {}
    frozen: list[int] = []
    for number, (name, at, other) in enumerate(steps):
        x, y = values[at], values[other]
        if name in NEW:
            values.append(NEW[name](f, x, y))
        elif name in IN_PLACE or name == "unrecorded":
            if name == "unrecorded":
                with f.no_grad():
                    x.mul_(0.5)
            elif not (x.is_leaf and x.requires_grad) and x is not y:
                IN_PLACE[name](f, x, y)
        elif name == "freeze":
            frozen.append(at)
        else:
            _apply_hook(name, x, number, seen)
    for at in frozen:  # after forward
        _apply_hook("freeze", values[at], at, seen)
    result |= {f"value {number}": value.detach() for number, value in enumerate(values)}
    result |= {f"requires_grad {number}": value.requires_grad for number, value in enumerate(values)}
    ends = [value for value in values if value.requires_grad and not value.is_leaf][-2:]
    try:
        if ends:
            loss = sum((end.tanh().sum() for end in ends[1:]), ends[0].tanh().sum())
            inputs = [leaf for leaf in leaves if leaf.requires_grad and leaf.is_leaf]  # of others, torch retains it from then on
            if seed % 3 == 0 and inputs:
                f.backward([loss], inputs=inputs[:1], retain_graph=True)
            if seed % 5 == 0 and inputs:
                first = [(i, part) for i, part in enumerate(f.grad(loss, inputs)) if part is not None and part.requires_grad]
                if first:
                    second = f.grad(sum((part.sum() for _, part in first[1:]), first[0][1].sum()), inputs)
                    result |= {f"second {i}": part for i, part in enumerate(second)}
            f.backward([loss])
    except f.errors as error:
        text = str(error)
        if "complex" in text:
            return result, "complex"
        if "modified" not in text:
            raise
        return result, "in place"
    result |= {f"grad {number}": value.grad for number, value in enumerate(values) if value.is_leaf or value.retains_grad}
    result |= {f"seen by {number}, {at}": item for number, items in seen.items() for at, item in enumerate(items)}
    return result, ""


def _same(one: Any, other: Any) -> bool:
    arrays = [
        np.zeros(()) if item is None else np.asarray(item.detach() if hasattr(item, "detach") else item) for item in (one, other)
    ]
    return np.allclose(*arrays, rtol=1e-8, atol=1e-10)


def difference(seed: int) -> str:
    """Where the two libraries differ in a random program; an empty string if nowhere."""
    (ours, refused), (theirs, theirs_refused) = run(Ours(), seed), run(Theirs(), seed)
    if refused == "complex":  # which torch knows how to differentiate
        return "" if any(name == "modulus" for name, _, _ in random_steps(seed)[2]) else "no complex numbers were there"
    if theirs_refused and not refused:  # torch saves what no gradient reads: let it, at that time
        with torch.autograd.graph.saved_tensors_hooks(torch.Tensor.clone, lambda saved: saved):
            theirs, theirs_refused = run(Theirs(), seed)
    keys = ours.keys() & theirs.keys() if refused or theirs_refused else ours.keys() | theirs.keys()
    for key in sorted(keys):
        if key not in ours or key not in theirs or not _same(ours[key], theirs[key]):
            return f"{key}: {ours.get(key)} where torch has {theirs.get(key)}"
    return "" if refused == theirs_refused else f"refused for {refused!r}, by torch for {theirs_refused!r}"
