# Made by python -m fluid.layers.generate_types, and not to be edited: a layer of tensors gives tensors, and one of variables
# variables. Where no argument tells which, it gives Any.

from collections.abc import Sequence
from fluid.eager.tensor import Tensor
from fluid.ir.program import Variable
from fluid.param_attr import AttrLike
from fluid.values.types import DTypeLike
from typing import Any
from typing import TypeVar

_V = TypeVar("_V", Variable, Tensor)

def data(name: str, shape: Sequence[int | None], dtype: DTypeLike = ..., lod_level: int = ...) -> Variable: ...
def embedding(input: _V, size: Sequence[int], is_sparse: bool = ..., is_distributed: bool = ..., padding_idx: int | None = ...,
    param_attr: AttrLike = ..., dtype: DTypeLike = ...) -> _V: ...
def one_hot(input: _V, depth: int | Variable, allow_out_of_range: bool = ...) -> _V: ...
