"""Recommender systems: counts of shows and clicks, and instances chosen by tags."""

from __future__ import annotations

from ..building.layer_helper import LayerHelper, apply
from ..ir.program import Variable
from .tensor import constant

__all__ = ["continuous_value_model", "filter_by_instag"]


def continuous_value_model(input: Variable, cvm: Variable, use_cvm: bool = True) -> Variable:
    """Embeddings whose first two columns, how often something was shown and clicked, become logarithms of these.

    Args:
        input: ``[N, D]``.
        cvm: ``[N, 2]``, the counts of each row, or of each sequence of rows of `input`; they are written to its gradient.
        use_cvm: if False, the two columns are left out.

    >>> embedding = fluid.dygraph.to_variable([[1.0, 0.0, 5.0]])
    >>> layers.continuous_value_model(embedding, fluid.dygraph.to_variable([[1.0, 0.0]]))
    Tensor([[ 0.6931, -0.6931,  5.    ]], shape=[1, 3], dtype=float32)
    """
    return apply("cvm", {"X": input, "CVM": cvm}, {"use_cvm": use_cvm}, layer="continuous_value_model")


def filter_by_instag(
    ins: Variable, ins_tag: Variable, filter_tag: Variable, is_lod: bool, out_val_if_empty: int = 0
) -> list[Variable]:
    """The instances that have one of the tags in `filter_tag`, and factors for their losses, ``[instances, 1]``.

    Args:
        ins: sequences of rows, one for each instance; rows if `is_lod` is False.
        ins_tag: sequences of tags, int64 ``[T, 1]``, one for each instance.
        filter_tag: int64 ``[K]``.
        is_lod: whether an instance is a sequence of rows, rather than a row.
        out_val_if_empty: the elements of the row that there is if no instance has a tag.

    The factors are 1, and 0 for the row of `out_val_if_empty`.

    >>> ins, tags = fluid.data("ins", [None, 8], lod_level=1), fluid.data("tags", [None, 1], "int64", lod_level=1)
    >>> chosen, factor = layers.filter_by_instag(ins, tags, fluid.data("wanted", [3], "int64"), is_lod=True)
    >>> chosen.shape, factor.shape
    ((-1, 8), (-1, 1))
    """
    inputs = {"Ins": ins, "Ins_tag": ins_tag, "Filter_tag": filter_tag}
    outputs = LayerHelper("filter_by_instag").apply(
        "filter_by_instag", inputs, {"is_lod": is_lod, "out_val_if_empty": out_val_if_empty}
    )
    constant(outputs["IndexMap"])
    return [outputs["Out"], constant(outputs["LossWeight"])]
