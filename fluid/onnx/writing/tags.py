"""Write the selection of instances by tags."""

from __future__ import annotations

from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import OnnxGraph, OnnxTensor
from .making import as_vector, filled
from .sequence_rows import cut_rows, ids_of, like_rows, starts_of
from .shaping import add_rows


def _lengths(g: OnnxGraph, x: OnnxTensor, forms_sequences: bool = True) -> OnnxTensor:
    """The number of rows of each instance: the rows of its sequence, or one."""
    if x.lengths is not None and forms_sequences:
        return x.lengths
    rows = g.size(x, 0)
    return filled(g, g.joined_sizes([rows]), 1, Spec((rows if isinstance(rows, int) else -1,), VarType.INT64))


def _tagged(g: OnnxGraph, Ins_tag: OnnxTensor, Filter_tag: OnnxTensor) -> OnnxTensor:
    """The numbers of the instances with one of the tags."""
    tags = as_vector(g, Ins_tag)
    same = g.binary("Equal", g.unsqueeze(tags, 1), g.unsqueeze(as_vector(g, Filter_tag), 0))
    hits = g.reduce("ReduceSum", g.cast(same, VarType.INT64), [1])
    lengths = _lengths(g, Ins_tag)
    zeros = g.binary("Mul", lengths, g.ints(0))
    counts = add_rows(g, zeros, ids_of(g, lengths, g.size(Ins_tag, 0)), hits)
    is_tagged = g.binary("Greater", counts, g.ints(0))
    return g.squeeze(g.sized_node("NonZero", [is_tagged], VarType.INT64, (1, -1)), 0)


@exports("filter_by_instag")
def filter_by_instag(
    g: OnnxGraph, Ins: OnnxTensor, Ins_tag: OnnxTensor, Filter_tag: OnnxTensor, is_lod: bool
) -> dict[str, OnnxTensor]:
    chosen, lengths = _tagged(g, Ins_tag, Filter_tag), _lengths(g, Ins, is_lod)
    starts, counts = g.gather(starts_of(g, lengths), chosen), g.gather(lengths, chosen)
    rows = g.gather(Ins, cut_rows(g, starts, counts))
    # If none is left, append a row of zeros.
    number = g.dims(chosen)
    missing = g.binary("Sub", g.ints(1), g.binary("Min", number, g.ints(1)))
    sizes = g.sizes_of(Ins)[1:]
    margin = filled(g, g.joined_sizes([missing, *sizes]), 0, Spec((-1, *Ins.shape[1:]), Ins.dtype))

    def ended(x: OnnxTensor, value: int, dtype: VarType = VarType.INT64) -> OnnxTensor:
        return g.concat([x, filled(g, missing, value, Spec((-1,), dtype))], 0)

    counts, starts = ended(counts, 1), ended(starts, 0)
    out = g.concat([rows, margin], 0)
    ones = filled(g, number, 1, Spec((-1,), VarType.FP32))
    weight = g.unsqueeze(ended(ones, 0, VarType.FP32), 1)
    places = g.concat([g.unsqueeze(column, 1) for column in (starts_of(g, counts), starts, counts)], 1)
    out.lengths = counts
    weight.lengths = places.lengths = filled(g, g.dims(counts), 1, Spec((-1,), VarType.INT64))
    return {"Out": out, "LossWeight": weight, "IndexMap": places}


@exports("rows_of_tagged")
def rows_of_tagged(g: OnnxGraph, IndexMap: OnnxTensor, LossWeight: OnnxTensor, Like: OnnxTensor) -> OnnxTensor:
    now, before, counts = (g.squeeze(g.slice(IndexMap, [1], [place], [place + 1]), 1) for place in range(3))
    ids = ids_of(g, counts, g.size(Like, 0))
    moved = g.gather(g.binary("Sub", before, now), ids)
    weight = g.gather(g.reshape(LossWeight, [-1], (-1,)), ids)
    is_present = g.binary("Greater", weight, g.number(0, weight))
    return like_rows(g.where(is_present, g.binary("Add", g.arange(g.size(Like, 0)), moved), g.ints(-1)), Like)
