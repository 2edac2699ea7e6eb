"""How ops that draw random numbers are written. The numbers are others than Fluid's, of the same distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import ELEMENTS, FIRST_SYMBOL, Graph, NotExported, Size, Tensor
from .making import asked_dims, filled

__all__ = ["drawn_like"]


def drawn_like(g: Graph, x: Tensor, op: str, seed: int = 0, **arguments: Any) -> Tensor:
    """Random numbers of 32-bit floats in the shape of a tensor; the same in each session, if there is a seed."""
    if seed:
        arguments["seed"] = float(seed % (1 << 24))
    spec = Spec(x.shape, VarType.FP32)
    result = g.node(op, [x if x.is_floating else g.cast(x, VarType.FP32)], spec, **{"dtype": ELEMENTS[VarType.FP32], **arguments})
    result.sizes = x.sizes
    return result


_Draw = Callable[[Graph, Tensor, dict[str, Any]], Tensor]


def _uniform(g: Graph, like: Tensor, attrs: dict[str, Any]) -> Tensor:
    return drawn_like(g, like, "RandomUniformLike", attrs.get("seed", 0), low=float(attrs["min"]), high=float(attrs["max"]))


def _normal(g: Graph, like: Tensor, attrs: dict[str, Any]) -> Tensor:
    return drawn_like(g, like, "RandomNormalLike", attrs.get("seed", 0), mean=float(attrs["mean"]), scale=float(attrs["std"]))


def _in_shape(g: Graph, dims: Tensor, sizes: tuple[int, ...], attrs: dict[str, Any], draw: _Draw) -> Tensor:
    shape = tuple(-1 if size >= FIRST_SYMBOL else size for size in sizes)
    like = filled(g, dims, 0.0, Spec(shape, VarType.FP32))
    if like.value is not None:
        like = g.identity(like)
    return draw(g, like, attrs)


def _by_shape(draw: _Draw) -> Callable[..., Tensor]:
    def drawn(g: Graph, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> Tensor:
        if attrs.get("diag_num"):
            raise NotExported("values of its own on the diagonal")
        dims = asked_dims(g, attrs["shape"], inputs.get("ShapeTensor"), inputs.get("ShapeTensorList"))
        return _in_shape(g, dims, specs["Out"].shape, attrs, draw)

    return drawn


def _by_batch(draw: _Draw) -> Callable[..., Tensor]:
    def drawn(g: Graph, Input: Tensor, attrs: dict[str, Any], specs: Any) -> Tensor:
        sizes: list[Size] = list(attrs["shape"])
        sizes[attrs["output_dim_idx"]] = g.size(Input, attrs["input_dim_idx"])
        return _in_shape(g, g.joined_sizes(sizes), specs["Out"].shape, attrs, draw)

    return drawn


exports("uniform_random")(_by_shape(_uniform))
exports("gaussian_random")(_by_shape(_normal))
exports("uniform_random_batch_size_like")(_by_batch(_uniform))
exports("gaussian_random_batch_size_like")(_by_batch(_normal))


@exports("bernoulli")
def bernoulli(g: Graph, X: Tensor) -> Tensor:
    drawn = g.cast(drawn_like(g, X, "RandomUniformLike", low=0.0, high=1.0), X.dtype)
    return g.cast(g.binary("Less", drawn, X, VarType.BOOL), X.dtype)


@exports("randint")
def randint(g: Graph, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> Tensor:
    dims = asked_dims(g, attrs["shape"], inputs.get("ShapeTensor"), inputs.get("ShapeTensorList"))
    low, high = attrs["low"], attrs["high"]
    if high - low > 1 << 22:
        raise NotExported("integers from a wider range than 32-bit floats tell apart")
    drawn = _in_shape(g, dims, specs["Out"].shape, {**attrs, "min": low, "max": high}, _uniform)
    whole = g.unary("Floor", drawn)
    return g.cast(g.binary("Min", whole, g.number(high - 1, whole)), specs["Out"].dtype)
