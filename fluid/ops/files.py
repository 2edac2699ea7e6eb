"""Ops that read and write files. A program from a file runs them only if its `allowed_ops` name them."""

from __future__ import annotations

from ..opdef.registry import NOT_DIFFERENTIABLE, ZERO_GRADIENT, define, long, longs, required


@define("save(X)->", grad=NOT_DIFFERENTIABLE, file_path=required("string"), overwrite=True, save_as_fp16=False)
def save() -> None:
    """Write X, with its LoD, to the file `file_path`; an error if the file exists and `overwrite` is off."""


@define(
    "save_combine(X*) -> Y?",
    grad=NOT_DIFFERENTIABLE,
    file_path=required("string"),
    overwrite=True,
    save_as_fp16=False,
    save_to_memory=False,
)
def save_combine() -> None:
    """Write the tensors X, one after the other, to the file `file_path`."""


@define("load() -> Out", grad=ZERO_GRADIENT, file_path=required("string"), load_as_fp16=False, seek=long(-1), shape=longs())
def load() -> None:
    """The tensor in the file `file_path`."""


@define("load_combine() -> Out*", grad=ZERO_GRADIENT, file_path=required("string"), load_as_fp16=False, model_from_memory=False)
def load_combine() -> None:
    """The tensors in the file `file_path`, in their order."""
