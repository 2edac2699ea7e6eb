"""The names that scripts use from ``fluid.core``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import EOFException, FluidError
from .executor.runtime.scope import LoDTensor, LoDTensorArray, Scope
from .ir import desc
from .ir.desc import BlockDesc, OpDesc, VarDesc, get_grad_op_desc
from .ir.program import OpRole, Program, Variable
from .not_here import names_here, names_not_here
from .opdef.registry import EMPTY, grad_slot
from .saving.predictor import AnalysisConfig, NativeConfig, PaddleBuf, PaddleDType, PaddleTensor, create_paddle_predictor
from .values.place import CPUPlace, CUDAPinnedPlace, CUDAPlace, Place, XLAPlace, get_cuda_device_count, is_compiled_with_cuda
from .values.selected_rows import SelectedRows
from .values.types import AttrType, VarType

__all__ = [
    "AnalysisConfig", "AttrType", "BlockDesc", "CPUPlace", "CUDAPinnedPlace", "CUDAPlace", "EOFException", "EnforceNotMet",
    "Layer", "LoDTensor", "LoDTensorArray", "NativeConfig", "OpDesc", "PaddleBuf", "PaddleDType", "PaddleTensor", "Place",
    "ProgramDesc", "Scope", "SelectedRows", "VarBase", "VarDesc", "VarType", "XLAPlace", "create_paddle_predictor",
    "from_dlpack", "get_cuda_device_count", "get_grad_op_desc", "is_compiled_with_cuda", "op_proto_and_checker_maker",
]  # fmt: skip

__dir__ = names_here(__name__)

if not TYPE_CHECKING:
    __getattr__ = names_not_here(__name__)

EnforceNotMet = FluidError


class ProgramDesc(desc.ProgramDesc):
    """A program; a new one if none is given.

    >>> fluid.core.ProgramDesc().num_blocks()
    1
    """

    def __init__(self, program: Program | None = None) -> None:
        super().__init__(program if program is not None else Program())


class Layer:
    """The base class of `fluid.dygraph` layers, for ``isinstance``.

    >>> isinstance(dygraph.Linear(4, 2), fluid.core.Layer)
    True
    """

    def forward(self, *inputs: Any) -> Any:
        """Nothing, in an empty list."""
        return []


class _ClassOfTensors(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return getattr(value, "_eager", False) is True


class VarBase(metaclass=_ClassOfTensors):
    """The class of tensors of eager mode, for ``isinstance``.

    >>> isinstance(dygraph.to_variable([1.0]), fluid.core.VarBase), isinstance(fluid.data("x", [2]), fluid.core.VarBase)
    (True, False)
    """


class op_proto_and_checker_maker:
    """Names of attributes that every op may have.

    >>> fluid.core.op_proto_and_checker_maker.kOpRoleAttrName()
    'op_role'
    """

    class OpRole:
        """Roles of ops."""

        Forward = OpRole.FORWARD
        Backward = OpRole.BACKWARD
        Optimize = OpRole.OPTIMIZE
        RPC = OpRole.RPC
        Dist = OpRole.DIST
        LRSched = OpRole.LR_SCHED
        Loss = OpRole.LOSS

    @staticmethod
    def kOpRoleAttrName() -> str:
        """The attribute with the op's role."""
        return OpRole.NAME

    @staticmethod
    def kOpRoleVarAttrName() -> str:
        """The attribute with the names of a parameter and its gradient."""
        return OpRole.VARS

    @staticmethod
    def kOpNameScopeAttrName() -> str:
        """The attribute with the path of `name_scope`."""
        return "op_namescope"


class _Capsule:
    """A capsule of DLPack, in host memory, as an object that numpy takes."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def from_dlpack(dlpack: Any) -> LoDTensor:
    """A tensor in the memory of another library's.

    Args:
        dlpack: a capsule, such as ``torch.utils.dlpack.to_dlpack`` gives, or a tensor with ``__dlpack__``.

    >>> array = np.ones([2], "float32")
    >>> tensor = fluid.core.from_dlpack(array.__dlpack__())
    >>> array[0] = 5.0
    >>> np.asarray(tensor)
    array([5., 1.], dtype=float32)
    """
    return LoDTensor(np.from_dlpack(dlpack if hasattr(dlpack, "__dlpack__") else _Capsule(dlpack)))


def kEmptyVarName() -> str:
    """The name that stands for no variable."""
    return EMPTY


empty_var_name = kEmptyVarName


def grad_var_suffix() -> str:
    """The suffix of gradient names."""
    return grad_slot("")


kGradVarSuffix = grad_var_suffix


def _is_here(*args: Any) -> bool:
    """False: backends of Paddle's ops that are not here."""
    return False


is_compiled_with_ngraph = is_compiled_with_mkldnn = is_compiled_with_brpc = is_compiled_with_dist = _is_here
get_flags_use_mkldnn = get_flags_use_ngraph = _is_here


def op_support_gpu(op_type: str) -> bool:
    """Whether an op can run on a GPU here: every op, where there is one."""
    return is_compiled_with_cuda()


def is_float16_supported(place: Any) -> bool:
    """Whether ops take float16 at this place."""
    return isinstance(place, CUDAPlace)


def _set_eager_deletion_mode(*settings: Any) -> None:
    """Does nothing: plans know when values are dead."""


def _set_fuse_parameter_group_size(*settings: Any) -> None:
    """Does nothing: parameters are not fused."""


def _create_loaded_parameter(variables: Iterable[Variable], scope: Scope, executor: Any) -> None:
    """Make a tensor of zeros in a scope for each of some variables, to be set."""
    for variable in variables:
        zeros = np.zeros(variable.shape, variable.dtype.array_dtype)
        scope.var(variable.name).get_tensor().set(zeros)
