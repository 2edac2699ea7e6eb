"""Ops that read and write files. A program that was read from a file runs them only where its `allowed_ops` name them."""

from __future__ import annotations

from ..opdef.registry import NOT_DIFFERENTIABLE, ZERO_GRADIENT, define, long, longs, required


@define("save(X)->", grad=NOT_DIFFERENTIABLE, file_path=required("string"), overwrite=True, save_as_fp16=False)
def save() -> None:
    """Write X, with its sequences, to the file `file_path`; an error if it is there already and `overwrite` is off."""


@define(
    "save_combine(X*) -> Y?",
    grad=NOT_DIFFERENTIABLE,
    file_path=required("string"),
    overwrite=True,
    save_as_fp16=False,
    save_to_memory=False,
)
def save_combine() -> None:
    """Write the tensors X, one after the other, to one file."""


@define("load() -> Out", grad=ZERO_GRADIENT, file_path=required("string"), load_as_fp16=False, seek=long(-1), shape=longs())
def load() -> None:
    """The tensor that the file `file_path` holds."""


@define("load_combine() -> Out*", grad=ZERO_GRADIENT, file_path=required("string"), load_as_fp16=False, model_from_memory=False)
def load_combine() -> None:
    """The tensors that the file `file_path` holds, one after the other."""
