# Made by python -m fluid.layers.generate_types, and not to be edited: a layer of tensors gives tensors, and one of variables
# variables. Where no argument tells which, it gives Any.

from collections.abc import Sequence
from fluid.eager.tensor import Tensor
from fluid.ir.program import Variable
from fluid.param_attr import AttrLike
from typing import Any
from typing import TypeVar

_V = TypeVar("_V", Variable, Tensor)

def glu(input: _V, dim: int = ...) -> _V: ...
def img_conv_group(input: _V, conv_num_filter: Sequence[int], pool_size: int | Sequence[int], conv_padding: Any = ...,
    conv_filter_size: Any = ..., conv_act: str | None = ..., param_attr: Any = ..., conv_with_batchnorm: Any = ...,
    conv_batchnorm_drop_rate: Any = ..., pool_stride: int | Sequence[int] = ..., pool_type: str = ...,
    use_cudnn: bool = ...) -> _V: ...
def multi_head_attention(queries: _V, keys: _V, values: _V, num_heads: int, dropout_rate: float = ...) -> _V: ...
def scaled_dot_product_attention(queries: _V, keys: _V, values: _V, num_heads: int = ..., dropout_rate: float = ...) -> _V: ...
def sequence_conv_pool(input: _V, num_filters: int, filter_size: int, param_attr: AttrLike = ..., act: str = ...,
    pool_type: str = ..., bias_attr: AttrLike = ...) -> _V: ...
def simple_img_conv_pool(input: _V, num_filters: int, filter_size: int | Sequence[int], pool_size: int | Sequence[int],
    pool_stride: int | Sequence[int], pool_padding: int | Sequence[int] = ..., pool_type: str = ..., global_pooling: bool = ...,
    conv_stride: int | Sequence[int] = ..., conv_padding: int | Sequence[int] = ..., conv_dilation: int | Sequence[int] = ...,
    conv_groups: int = ..., param_attr: AttrLike = ..., bias_attr: AttrLike = ..., act: str | None = ...,
    use_cudnn: bool = ...) -> _V: ...
