"""Ops that Paddle's executors write into programs: what moves values between devices and buffers, which here changes nothing."""

from __future__ import annotations

from typing import Any

from ..opdef.composition import composed
from ..opdef.registry import Attr, required
from . import creation, elementwise  # noqa: F401  (what the ops are made of)


def _define_copy(signature: str, doc: str, **attrs: Any) -> None:
    def copied(f: Any, values: Any) -> Any:
        return f.assign(next(iter(values.values())))

    copied.__doc__ = doc
    copied.__module__ = __name__
    composed(signature, **attrs)(copied)


_PLACE = {"dst_place_type": Attr("int", -1)}
_define_copy("memcpy(X) -> Out", "X, which is where it should be.", **_PLACE)
_define_copy("memcpy_d2h(X) -> Out", "X, which is where it should be.", **_PLACE)
_define_copy("memcpy_h2d(X) -> Out", "X, which is where it should be.", **_PLACE)
_define_copy("share_data(X) -> Out", "X; in Paddle, both have one buffer.")
_define_copy("npu_identity(x) -> out", "x, which has one layout.", format=-1)
_define_copy("shadow_output(x) -> out", "x, which is an output of the program, too.", name="")


@composed("depend(X, Dep*) -> Out", wrt=["X"], constants=["Dep"])
def depend(f: Any, X: Any, Dep: Any) -> Any:
    """X, once Dep are computed, as they are wherever an op reads them."""
    return f.assign(X)


@composed("share_buffer(X*) -> Out*, XOut*?", share_dims_and_dtype=Attr("bools", []))
def share_buffer(f: Any, X: Any) -> Any:
    """Each X; in Paddle, X and Out have one buffer. XOut are the X again."""
    return {slot: [f.assign(value) for value in X] for slot in ("Out", "XOut")}


@composed("transfer_dtype(X) -> Out", out_dtype=required("int"), in_dtype=required("int"))
def transfer_dtype(f: Any, X: Any, in_dtype: int, out_dtype: int) -> Any:
    """`cast`."""
    return f.cast(X, in_dtype=in_dtype, out_dtype=out_dtype)
