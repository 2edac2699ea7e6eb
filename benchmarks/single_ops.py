"""Single ops of programs beside torch's, with and without gradients, in one thread of the processor.

Both sides multiply floating inputs by a number first: native code joins this to the op, as it joins the ops of nets.
``python benchmarks/single_ops.py softmax`` times the ops with that word in their names.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch
from common import header
from kinds import median_milliseconds, normal
from more_kinds import integers
from torch.nn import functional

import fluid
from fluid import layers


class Case(NamedTuple):
    """An op: its inputs, and functions of them in Fluid and in torch."""

    name: str
    inputs: list[Any]
    fluid: Callable[..., Any]
    torch: Callable[..., Any]


# --------------------------------------------------------------------------------------------------------------- cases
def reductions() -> Iterator[Case]:
    for shape, axis in (
        ((32, 50, 128), 1), ((4, 1000, 64), 1), ((100, 32, 64), 0), ((257, 1023), 0), ((8, 64, 28, 28), 1), ((64, 1000), 1),
        ((1000, 3), 1), ((3, 100_000), 0), ((37, 101, 11), 1), ((4, 1031, 37), 1), ((8192, 20), 1),
    ):  # fmt: skip
        x, what = normal(*shape), f"{list(shape)} over axis {axis}"
        for name, ours, theirs in (
            ("mean", layers.reduce_mean, torch.mean), ("maximum", layers.reduce_max, torch.amax),
            ("product", layers.reduce_prod, torch.prod), ("logsumexp", layers.logsumexp, torch.logsumexp),
            ("argmax", layers.argmax, torch.argmax), ("cumsum", layers.cumsum, torch.cumsum),
        ):  # fmt: skip
            yield Case(f"{name}, {what}", [x], lambda x, f=ours, a=axis: f(x, a), lambda x, f=theirs, a=axis: f(x, a))


def normalizations() -> Iterator[Case]:
    for shape, axis in (((64, 1000), 1), ((32, 50_257), 1), ((32, 50, 128), 1), ((8, 21, 64, 64), 1), ((16, 8, 128, 128), 3)):
        x, what = normal(*shape), f"{list(shape)} along axis {axis}"
        for name, theirs in (("softmax", functional.softmax), ("log_softmax", functional.log_softmax)):
            ours = getattr(layers, name)
            yield Case(f"{name}, {what}", [x], lambda x, f=ours, a=axis: f(x, axis=a), lambda x, f=theirs, a=axis: f(x, a))
    for shape in ((32, 50, 256), (4096, 64), (32, 50_257)):
        yield Case(
            f"layer_norm, {list(shape)}",
            [normal(*shape)],
            lambda x: layers.layer_norm(x, begin_norm_axis=len(x.shape) - 1, scale=False, shift=False),
            lambda x: functional.layer_norm(x, x.shape[-1:]),
        )
    for classes in (1000, 50_257):
        yield Case(
            f"cross entropy of {classes} classes",
            [normal(32, classes), integers(classes, 32, 1)],
            layers.softmax_with_cross_entropy,
            lambda x, y: functional.cross_entropy(x, y[:, 0], reduction="none"),
        )
    yield Case(
        "cross entropy of pixels, 21 classes",
        [normal(4, 21, 64, 64), integers(21, 4, 1, 64, 64)],
        lambda x, y: layers.softmax_with_cross_entropy(x, y, axis=1),
        lambda x, y: functional.cross_entropy(x, y[:, 0], reduction="none"),
    )


def searches() -> Iterator[Case]:
    for shape, k in (((64, 1000), 5), ((1000, 200), 3), ((16, 50_000), 5), ((16, 50_000), 20)):
        yield Case(
            f"the {k} largest of {list(shape)}",
            [normal(*shape)],
            lambda x, k=k: layers.topk(x, k)[0],
            lambda x, k=k: x.topk(k)[0],
        )
    for shape in ((64, 1000), (2000, 12), (512, 50), (10, 5000), (1, 100_000)):
        yield Case(f"sort, {list(shape)}", [normal(*shape)], lambda x: layers.argsort(x)[0], lambda x: x.sort(-1)[0])


def images() -> Iterator[Case]:
    for shape in ((16, 1, 224, 224), (8, 64, 28, 28)):
        x = normal(*shape)
        for kind, pool in (("max", functional.adaptive_max_pool2d), ("avg", functional.adaptive_avg_pool2d)):
            yield Case(
                f"global {kind} pool, {list(shape)}",
                [x],
                lambda x, kind=kind: layers.pool2d(x, pool_type=kind, global_pooling=True),
                lambda x, pool=pool: pool(x, 1),
            )
    yield Case(
        "maxout of 2, [8, 64, 28, 28]",
        [normal(8, 64, 28, 28)],
        lambda x: layers.maxout(x, 2),
        lambda x: x.unflatten(1, (32, 2)).amax(2),
    )


def powers() -> Iterator[Case]:
    for dtype in ("float32", "float64"):
        x, y = (np.abs(normal(300, 1000)) + 0.1).astype(dtype), normal(300, 1000).astype(dtype)
        yield Case(f"pow of {dtype}, [300, 1000]", [x, y], layers.elementwise_pow, torch.pow)


def indexed() -> Iterator[Case]:
    for rows, width, count in ((10_000, 64, 4096), (50_000, 13, 8192), (7, 300, 10_000)):
        table, ids, updates = normal(rows, width), integers(rows, count), normal(count, width)
        yield Case(f"gather of {count} in [{rows}, {width}]", [table, ids], layers.gather, lambda x, ids: x[ids])
        yield Case(
            f"scatter_nd_add of {count} in [{rows}, {width}]",
            [table, ids, updates],
            lambda x, ids, rows: layers.scatter_nd_add(x, layers.unsqueeze(ids, [1]), rows),
            lambda x, ids, rows: x.index_add(0, ids, rows),
        )
    for rows, columns, count in ((512, 1000, 30), (200, 5000, 7), (8192, 64, 8)):
        yield Case(
            f"index_sample of {count} in [{rows}, {columns}]",
            [normal(rows, columns), integers(columns, rows, count)],
            layers.index_sample,
            lambda x, ids: x.gather(1, ids),
        )
    yield Case(
        "unique of 10000",
        [integers(500, 10_000)],
        lambda x: layers.unique(x)[0],
        lambda x: torch.unique(x, return_inverse=True)[0],
    )


def moved() -> Iterator[Case]:
    for shape, order in (((64, 101, 33), (0, 2, 1)), ((513, 1027), (1, 0)), ((7, 11, 13, 17, 19), (4, 2, 0, 3, 1))):
        yield Case(
            f"transpose of {list(shape)} by {order}",
            [normal(*shape)],
            lambda x, order=order: layers.transpose(x, list(order)),
            lambda x, order=order: x.permute(order).contiguous(),
        )
    for shapes, axis in ((((64, 10), (64, 3), (64, 17)), 1), (((8, 16, 28, 28),) * 3, 1)):
        arrays = [normal(*shape) for shape in shapes]
        yield Case(
            f"concat of {shapes}", arrays, lambda *x, a=axis: layers.concat(list(x), a), lambda *x, a=axis: torch.cat(x, a)
        )
    yield Case(
        "pad2d by reflection of [8, 16, 28, 28]",
        [normal(8, 16, 28, 28)],
        lambda x: layers.pad2d(x, [2, 2, 2, 2], mode="reflect"),
        lambda x: functional.pad(x, (2, 2, 2, 2), mode="reflect"),
    )
    yield Case(
        "strided slice of [64, 101, 33]",
        [normal(64, 101, 33)],
        lambda x: layers.strided_slice(x, [1, 2], [0, 0], [101, 33], [3, 2]),
        lambda x: x[:, ::3, ::2].contiguous(),
    )


def products() -> Iterator[Case]:
    for batch, rows, inner, columns in (
        (1000, 4, 4, 4),
        (64, 33, 17, 29),
        (8192, 1, 16, 16),
        (1, 8192, 3, 64),
        (1, 331, 257, 113),
    ):
        what = f"{batch} products of [{rows}, {inner}] and [{inner}, {columns}]"
        yield Case(what, [normal(batch, rows, inner), normal(batch, inner, columns)], layers.matmul, torch.matmul)
    yield Case(
        "einsum bihd,bjhd->bhij",
        [normal(8, 50, 4, 32), normal(8, 50, 4, 32)],
        lambda x, y: layers.einsum("bihd,bjhd->bhij", x, y),
        lambda x, y: torch.einsum("bihd,bjhd->bhij", x, y),
    )


def of_integers() -> Iterator[Case]:
    x, y = integers(1000, 300, 1000), integers(99, 300, 1000) + 1
    for name, ours, theirs in (
        ("sum", lambda x, y: layers.reduce_sum(x, 1), lambda x, y: x.sum(1)),
        ("cumsum", lambda x, y: layers.cumsum(x, 1), lambda x, y: x.cumsum(1)),
        ("remainder", layers.elementwise_mod, torch.remainder),
        ("quotient", layers.elementwise_floordiv, torch.floor_divide),
    ):
        yield Case(f"{name} of int64, [300, 1000]", [x, y], ours, theirs)


# ------------------------------------------------------------------------------------------------------------- measuring
def fluid_step(case: Case, is_trained: bool) -> Callable[[], Any]:
    main, scope = fluid.Program(), fluid.Scope()
    feed = {f"input_{number}": array for number, array in enumerate(case.inputs)}
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        feeds = [fluid.data(name, list(array.shape), array.dtype.name) for name, array in feed.items()]
        inputs = []
        for x, array in zip(feeds, case.inputs, strict=True):
            x.stop_gradient = array.dtype.kind != "f"
            inputs.append(x if x.stop_gradient else layers.scale(x, 1.5))
        fetches = [case.fluid(*inputs)]
        if is_trained:
            fetches = fluid.gradients([layers.reduce_sum(layers.square(fetches[0]))], [x for x in feeds if not x.stop_gradient])
    executor = fluid.Executor()
    return lambda: executor.run(main, feed, fetches, scope=scope)


def torch_step(case: Case, is_trained: bool) -> Callable[[], Any]:
    inputs = [torch.from_numpy(array) for array in case.inputs]
    floats = [x.requires_grad_(is_trained) for x in inputs if x.is_floating_point()]

    def step() -> Any:
        result = case.torch(*(x * 1.5 if x.is_floating_point() else x for x in inputs))
        return torch.autograd.grad(result.square().sum(), floats) if is_trained else result.numpy()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", default=[""], help="words of the names (all)")
    words = parser.parse_args().words
    torch.set_num_threads(1)
    fluid.set_num_threads(1)
    header("Single ops beside torch's, one thread")
    ratios = []
    print("| op | Fluid, ms | torch, ms | Fluid / torch | with gradients | | |\n|---|---|---|---|---|---|---|")
    for kind in (reductions, normalizations, searches, images, powers, indexed, moved, products, of_integers):
        for case in kind():
            if not any(word in case.name for word in words):
                continue
            cells = []
            has_gradient = case.name.split(",")[0] != "argmax" and any(x.dtype.kind == "f" for x in case.inputs)
            for is_trained in (False, True) if has_gradient else (False,):
                ours, theirs = (median_milliseconds(make(case, is_trained), 0.3) for make in (fluid_step, torch_step))
                ratios.append(ours / theirs)
                cells += [f"{ours:.3f}", f"{theirs:.3f}", f"{ours / theirs:.2f}"]
            print(f"| {case.name} | {' | '.join(cells)} |", flush=True)
    print(
        f"\ngeometric mean {np.exp(np.mean(np.log(ratios))):.2f}, over 1.0: {sum(ratio > 1 for ratio in ratios)} of {len(ratios)}"
    )


if __name__ == "__main__":
    main()
