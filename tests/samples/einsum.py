"""Samples of `fluid.ops.einsum`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("einsum")


def summed(Operands: Any, equation: str) -> Any:
    return {
        "Out": np.einsum(equation, *Operands),
        "InnerCache": Operands,
        "XShape": [np.zeros((0, *x.shape), x.dtype) for x in Operands],
    }


add(
    "einsum",
    *(
        Sample({"Operands": [data(*shape) for shape in shapes]}, {"equation": equation}, summed)
        for equation, *shapes in (
            ("ij,jk->ik", (2, 3), (3, 4)),
            ("ij,kj->ik", (2, 3), (4, 3)),
            ("bij,bjk->bik", (2, 3, 4), (2, 4, 2)),
            ("bij, jk -> kbi", (2, 3, 4), (4, 2)),
            ("ij->ji", (2, 3)),
            ("ij->", (2, 3)),
            ("ij->j", (2, 3)),
            ("ii->i", (3, 3)),
            ("ii", (3, 3)),
            ("iij,ik->kj", (2, 2, 3), (2, 4)),
            ("i,j->ij", (2,), (3,)),
            ("ij,ij->i", (2, 3), (2, 3)),
            ("ij,jk,kl->il", (2, 3), (3, 2), (2, 4)),
            ("bn,anm,bm->ba", (2, 3), (4, 3, 2), (2, 2)),
            ("...ij,...jk->...ik", (2, 1, 2, 3), (4, 3, 2)),
            ("...i,i->...", (2, 3), (3,)),
            ("ij,jk", (2, 3), (3, 2)),
            (",i->i", (), (3,)),
            ("ij,j->i", (2, 3), (1,)),
            ("ij,jk->ik", (0, 3), (3, 2)),
        )
    ),
)


def summed_like(Operands: Any, Like: Any, equation: str) -> Any:
    left, result = equation.split("->")
    terms = left.split(",")
    kept = [x for x, n in zip(result, Like.shape, strict=True) if any(x in term for term in terms) and n != 1]
    labels = "".join(dict.fromkeys(kept))
    found = np.einsum(f"{left}->{labels}", *Operands)
    out = np.zeros_like(Like)
    for index in np.ndindex(Like.shape):
        at = dict(zip(result, index, strict=True))
        if all(at[x] == i for x, i in zip(result, index, strict=True)):
            out[index] = found[tuple(at[x] if found.shape[k] > 1 else 0 for k, x in enumerate(labels))]
    return out


add(
    "einsum_like",
    *(
        Sample({"Operands": [data(*shape) for shape in shapes], "Like": data(*like)}, {"equation": equation}, summed_like)
        for equation, like, *shapes in (
            ("ij,jk->ik", (2, 4), (2, 3), (3, 4)),
            ("ij,jk->ijl", (2, 3, 2), (2, 3), (3, 4)),
            ("i->ii", (3, 3), (3,)),
            ("i,ij->iji", (2, 3, 2), (2,), (2, 3)),
            ("->i", (3,), ()),
            ("ij,j->ij", (1, 3), (2, 3), (3,)),
            ("i,j->j", (3,), (2,), (1,)),
        )
    ),
)
