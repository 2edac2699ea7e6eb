"""Tensors: arrays with a reference to the graph that computed them."""

from __future__ import annotations

import itertools
import numbers
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..building.sizes import TracedSize
from ..errors import BackwardError, FluidTypeError, MissingAttributeError, ProgramError, did_you_mean
from ..executor.binding.array_types import CPU, ArrayType, array_of, array_type_of
from ..ir.advice import reflected_method
from ..ir.frames import warn_user
from ..ir.program import Block, Variable
from ..opdef import registry
from ..opdef.inference import OpNamespace
from ..opdef.registry import Rule
from ..values.bfloat16 import BFLOAT16, computable, converted, to_float32
from ..values.lod_array import lod_of, to_lod
from ..values.lod_tensor import LoDTensor
from ..values.one_element import convertible
from ..values.operators import ValueOperators
from ..values.place import CUDA_MEMORY, HOST_MEMORY, Place, import_cupy
from ..values.selected_rows import SelectedRows
from ..values.shape import Shape
from ..values.spec import Lod
from ..values.types import DTypeLike, VarType
from .graph import NO_GRAPH, Hooks, Node, NodeHooks, RemovableHandle, keep_gradient, leaf_edge, user_line
from .mode import state
from .parts import parts

_names = itertools.count()
_Edge = tuple[Node, int]
_ELSEWHERE = {
    "cuda": "with dygraph.guard(fluid.CUDAPlace(0)):, in which new tensors are on a GPU",
    "gather": "layers.gather(x, index) for rows, or fluid.numpy.take_along_axis(x, index, axis=...)",
    "median": "fluid.numpy.sort(x), and its middle",
    "new_ones": "layers.ones(shape, dtype)",
    "new_zeros": "layers.zeros(shape, dtype)",
    "nonzero": "layers.where(condition)",
    "outer": "x.reshape(-1, 1) * y.reshape(1, -1)",
    "repeat": "x.tile(...)",
    "scatter": "layers.scatter(x, index, updates) for rows",
    "split": "x.chunk(count), or layers.split(x, sections, dim)",
    "take": "layers.gather(x, index)",
    "unique": "layers.unique(x)",
}
"""Names of torch and numpy that are no methods here, since they would do something else -> what to write."""


@cache
def _hint(kind: type, name: str) -> str:
    """What to write in place of an attribute that tensors lack. Code that only asks for an attribute asks again and again."""
    if name in _ELSEWHERE:
        return f"; write {_ELSEWHERE[name]}"
    return did_you_mean(name, dir(kind)) if name[0] != "_" else ""


if TYPE_CHECKING:
    _Values = Variable  # as `isinstance` has it: `Variable.register` below
else:
    _Values = ValueOperators


class Tensor(_Values):
    """An array of numpy or cupy, with the recorded graph that computed it.

    Ops on tensors run at once. Where an input requires a gradient they are recorded, and their results require one too.
    Operators broadcast as in numpy, between tensors of one element type; numbers are converted to the tensor's. ``==`` and ``!=``
    compare element by element; ``is`` and `hash` are by object. ``x += y`` and other such operators, except ``@=``, change `x` in
    place, as the methods that end in ``_`` do; ``x = x + y`` makes a new tensor.

    Args:
        data: anything like an array, or a tensor; sequences that its rows form remain.
        dtype: element type; by default the type of `data`, and float32 for Python's floats.
        stop_gradient: whether the tensor requires no gradient.
        requires_grad: the opposite of `stop_gradient`; overrides it.
        name: generated on first use by default.
        copy: False to share the memory of `data` where possible.

    >>> x = dygraph.Tensor([1.0, 2.0], stop_gradient=False)
    >>> y = (x * x).sum()
    >>> y
    Tensor([5.], shape=[1], dtype=float32, grad_fn=<reduce_sum_grad>)
    >>> y.backward()
    >>> x.gradient()
    array([2., 4.], dtype=float32)
    """

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_accumulator",
        "_array",
        "_edge",
        "_grad",
        "_hooks",
        "_kind",
        "_name",
        "_stop",
        "_version",
    )

    _accumulator: weakref.ref[Node] | None
    _array: Any
    _edge: _Edge | None
    _grad: Tensor | None
    _hooks: NodeHooks | None
    _kind: ArrayType
    _name: str | None
    _stop: bool
    _version: list[Any]

    _computed_as: type[Tensor]
    """The class of results from tensors of this class."""
    _eager = True
    _had_gradient = False
    """Whether a gradient was cleared."""

    def __init__(
        self,
        data: Any,
        dtype: DTypeLike | None = None,
        stop_gradient: bool = True,
        name: str | None = None,
        *,
        requires_grad: bool | None = None,
        copy: bool = True,
    ) -> None:
        lod, version = _lod_of(data), [0]
        if isinstance(data, Tensor):
            data._read("Tensor(...)")
            data, version = data._array, data._version
        self._array = array_of(data, dtype, copy or None)
        self._kind = array_type_of(self._array, lod)
        self._edge = self._grad = self._hooks = self._accumulator = None
        self._stop, self._version, self._name = True, version if self._array is data else [0], name
        self.stop_gradient = stop_gradient if requires_grad is None else not requires_grad
        if state.tracer is not None:
            state.tracer.note_created(self, data)

    @classmethod
    def _of(cls, array: Any) -> Tensor:
        """A tensor that takes ownership of an array."""
        return make(array, array_type_of(array))

    def _ops(self) -> OpNamespace:
        return parts.ops.namespace

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise MissingAttributeError(f"{type(self).__name__!r} has no attribute {name!r}{_hint(type(self), name)}")

    # -- properties
    @property  # type: ignore[misc]  # a variable's may be set
    def shape(self) -> Shape:  # type: ignore[override]
        """The dimensions: a tuple that can be compared with lists, and added to them."""
        if state.sizes is not None:
            return state.sizes.shape_of(self)  # type: ignore[no-any-return]
        return self._kind.shape_for_users

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._kind.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        if state.sizes is not None:
            state.sizes.note_size(self)
        return self._kind.size

    @property  # type: ignore[misc]
    def dtype(self) -> VarType:
        """The element type."""
        return self._kind.dtype

    @property
    def lod(self) -> Lod:
        """The sequences that its rows form (see `fluid.values.spec.Lod`)."""
        return self._kind.lod

    @property
    def lod_level(self) -> int:  # type: ignore[override]
        """How many levels of sequences its rows form."""
        return len(self._kind.lod)

    def with_lod(self, lod: Lod) -> Tensor:
        """A tensor in the same memory whose rows form these sequences; nothing is recorded."""
        if state.tracer is not None:
            state.tracer.refuse_call("with_lod", "use fluid.layers.lod_reset")
        return make(
            self._array,
            array_type_of(self._array, tuple(None if level is None else tuple(level) for level in lod)),
            None,
            self._version,
        )

    @property
    def is_cuda(self) -> bool:
        """Whether it is on a GPU."""
        return self.device != CPU

    @property
    def device(self) -> str:
        """``"cpu"``, or for example ``"cuda:0"``."""
        return self._kind.device

    @property  # type: ignore[misc]
    def type(self) -> VarType:
        """The variable type that it would have in a program; `VarType.SELECTED_ROWS` for sparse gradients."""
        return self._kind.spec.type

    # -- attributes of variables and parameters that layers and optimizers read
    _persists = False
    is_data = False
    has_shape = has_dtype = True
    error_clip: Any = None
    optimize_attr: Mapping[str, Any] = {"learning_rate": 1.0}
    regularizer: Any = None
    gradient_clip_attr: Any = None

    @property
    def persistable(self) -> bool:
        """Whether it is a parameter. Any tensor stays as long as something refers to it, so that setting this changes nothing."""
        return self._persists

    @persistable.setter
    def persistable(self, persistable: bool) -> None:
        if persistable is not self._persists:
            warnings.warn(
                f"{self.name}: persistable means nothing for tensors, which stay as long as something refers to them; what a "
                "layer is to save is its parameter, or register_buffer(name, tensor)",
                stacklevel=2,
            )

    @property
    def block(self) -> Block:  # type: ignore[override]
        """The block that ops on it are appended to; they run at once."""
        return parts.ops.block

    @property
    def trainable(self) -> bool:
        """Whether optimizers change it."""
        return not self._stop

    @trainable.setter
    def trainable(self, trainable: bool) -> None:
        self.stop_gradient = not trainable

    @property
    def name(self) -> str:
        """Its name, generated when it is first asked for."""
        if self._name is None:
            self._name = f"generated_tensor_{next(_names)}"
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name

    @property
    def version(self) -> int:
        """How often it was modified in place."""
        return int(self._version[0])

    def describe(self) -> str:
        """Element type and shape, for messages."""
        return str(self._kind)

    # -- gradients
    @property
    def stop_gradient(self) -> bool:
        """Whether no gradient flows to it. Setting it to True detaches the tensor from its graph."""
        return self._stop

    @stop_gradient.setter
    def stop_gradient(self, stop: bool) -> None:
        if not stop and not self._kind.differentiable:
            raise FluidTypeError(f"{self._kind} cannot have a gradient; only tensors of floats can")
        if state.tracer is not None and bool(stop) is not self._stop:
            (state.tracer.set_stop_gradient if stop else state.tracer.clear_stop_gradient)(self)
        self._stop = bool(stop)
        if stop:
            self._edge = None

    _stop_gradient = stop_gradient
    """As scripts of Fluid 1.6 name it."""

    @property
    def _ivar(self) -> Tensor:
        """The tensor itself: in Fluid 1.6, the object of C++ behind it."""
        return self

    def _grad_ivar(self) -> Tensor | None:
        """Its `grad`: in Fluid 1.6, the gradient of the object of C++ behind it."""
        return self.grad

    def value(self) -> Tensor:
        """The tensor itself: in Fluid 1.6, the variable that holds it."""
        return self

    def get_tensor(self) -> LoDTensor:
        """The tensor's value as in a scope; setting it changes this tensor."""
        return _Held(self)

    @property
    def requires_grad(self) -> bool:
        """The opposite of `stop_gradient`."""
        return not self._stop

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self.stop_gradient = not wanted

    def requires_grad_(self, wanted: bool = True) -> Tensor:
        """Set `requires_grad`; the tensor itself."""
        self.requires_grad = wanted
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether it was not computed by a recorded op; `backward` sets the `grad` of leaves, inside a `guard` of all tensors."""
        return self._edge is None

    @property
    def grad_fn(self) -> Node | None:
        """The node that computes gradients of the tensors that it was computed from; None for leaves."""
        return None if self._edge is None else self._edge[0]

    @property
    def output_nr(self) -> int:
        """The index of this tensor among the outputs of the op of `grad_fn`."""
        return 0 if self._edge is None else self._edge[1]

    @property
    def grad(self) -> Tensor | None:
        """The sum of gradients from `backward`, or None."""
        if state.tracer is not None:
            state.tracer.read_gradient(self)
        return self._grad

    @grad.setter
    def grad(self, grad: Tensor | None) -> None:
        if state.tracer is not None:
            state.tracer.replace_gradient(self)
        if grad is not None:
            if not isinstance(grad, Tensor):
                raise FluidTypeError(f"grad should be a Tensor or None, not {_type_name(grad)}")
            if grad._kind is not self._kind and (grad.shape, grad.dtype) != (self.shape, self.dtype):
                raise ProgramError(f"the grad of {self.name} ({self._kind}) cannot be {grad._kind}")
        self._grad = grad

    @grad.deleter
    def grad(self) -> None:
        self.clear_gradient()

    def gradient(self) -> np.ndarray[Any, Any] | None:
        """The gradient as a numpy array; zeros after `clear_gradient`, as in Fluid 1.6.

        None before the first backward, with a warning for a tensor that is computed and does not keep its gradient.
        """
        grad = self.grad
        if grad is not None:
            return grad.numpy()
        if self._had_gradient:
            return np.zeros(self.shape, self.dtype.numpy)
        if self._edge is not None and self._edge[0]._keepers is None and not self.retains_grad:
            warnings.warn(
                f"{self.name} is computed by {self._edge[0].name}, and only keeps its gradient where it is asked to: call its "
                "retain_grads() before backward",
                stacklevel=2,
            )
        return None

    def clear_gradient(self) -> None:
        """Clear the gradient: `grad` is None, and `gradient` gives zeros, until the next backward."""
        if state.tracer is not None:
            state.tracer.replace_gradient(self)
        if self._grad is not None:
            self._had_gradient = True
        self._grad = None

    def backward(
        self,
        grad_tensor: Any = None,
        retain_graph: bool = False,
        create_graph: bool = False,
        inputs: Any = None,
        backward_strategy: Any = None,
    ) -> None:
        """Add the gradients of this tensor's elements, weighted by `grad_tensor`, to the leaves it was computed from.

        Where none of them requires a gradient, it warns and does nothing.

        Args:
            grad_tensor: of this tensor's shape and element type; ones by default.
            retain_graph: keep the values that the recorded ops saved, so that backward can run again.
            create_graph: record the computation of the gradients, so that they can be differentiated.
            inputs: the only tensors whose `grad` is added to.
            backward_strategy: accepted, also as the first argument, as in Fluid 1.6; the order of sums is always the same here.
        """
        if hasattr(grad_tensor, "sort_sum_gradient"):
            grad_tensor = None
        if self._stop and state.tracer is None:
            warn_user(f"backward does nothing: this tensor, {self._kind}, {NO_GRAPH}")
            return
        grads = None if grad_tensor is None else [grad_tensor]
        parts.passes.backward([self], grads, retain_graph, create_graph, inputs)

    def retain_grads(self) -> None:
        """Keep the gradient of this tensor in `grad` although it is not a leaf.

        After modification in place, this is the gradient of the final elements.
        """
        if self._stop:
            raise BackwardError(f"{self.name} has stop_gradient set, so it will have no gradient to retain")
        if self._edge is not None:
            node, number = self._edge
            node._all_hooks().retained[number] = weakref.ref(self)

    retain_grad = retain_grads

    @property
    def retains_grad(self) -> bool:
        """Whether it keeps its gradient by `retain_grads` without being a leaf."""
        hooks = None if self._edge is None else self._edge[0]._hooks
        reference = None if hooks is None else hooks.retained.get(self.output_nr)
        return reference is not None and reference() is self

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Call ``hook(grad)`` with the gradient of this tensor; a result other than None replaces the gradient.

        The gradient belongs to the tensor's present elements, even if it is modified in place later. The returned handle removes
        the hook.
        """
        if self._stop:
            raise BackwardError(f"{self.name} has stop_gradient set, so it will have no gradient to call a hook with")
        node, number = self._edge or leaf_edge(self)
        return RemovableHandle(node._all_hooks().of_tensor.setdefault(number, Hooks()), hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], Any]) -> RemovableHandle:
        """Call ``hook(tensor)`` each time after a gradient was added to the `grad` of this leaf, which it may use up::

            def step(weight):
                optimizer_step(weight, weight.grad)
                weight.grad = None

        So the gradients of a large model need not all be there at once. The handle that is returned removes the hook.
        """
        if self._stop:
            raise BackwardError(f"{self.name} has stop_gradient set, so it will have no gradient to call a hook with")
        if self._edge is not None:
            raise BackwardError(f"{self.name} was computed by {self._edge[0].name}; only leaves are added gradients to")
        return RemovableHandle(leaf_edge(self)[0]._all_hooks().accumulated, hook)

    def detach(self) -> Tensor:
        """A tensor in the same memory, without a graph."""
        if state.tracer is not None:
            return of_class_of(self, state.tracer.bind_view(self))
        return of_class_of(self, make(self._array, self._kind, None, self._version))

    def detach_(self) -> Tensor:
        """Make this tensor a leaf without a gradient; the tensor itself."""
        self.stop_gradient = True
        return self

    def clone(self) -> Tensor:
        """A copy, through which gradients flow."""
        return of_class_of(self, parts.ops.assign(self))

    # -- values
    def _read(self, by: str) -> None:
        """Raise an error if a function is being traced, which may not read values; `by` names the reader."""
        if state.tracer is not None:
            state.tracer.refuse_read(self, by)

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy as a numpy array; one of one element converts to a number, such as by ``float``, in any shape."""
        self._read("numpy()")
        return convertible(self._host())

    def _host(self) -> np.ndarray[Any, Any]:
        if self._kind.device == CPU:
            return np.array(self._array) if self.dtype is not VarType.BF16 else to_float32(self._array)
        return self._array.get()  # type: ignore[no-any-return]

    def item(self, *position: int) -> Any:
        """The only element, or the element at a position, as a Python number."""
        if not position and self.size != 1:
            raise ProgramError(f"item() of {self._kind}: there are {self.size} elements; say which, as in item(0, 1)")
        self._refuse_sparse("item()")
        self._read("item()")
        return self._host().item(*position) if self.dtype is VarType.BF16 else self._array.item(*position)

    def _refuse_sparse(self, by: str) -> None:
        if isinstance(self._array, SelectedRows):
            raise FluidTypeError(
                f"{by}: {self.name} is a sparse gradient of {self._kind}, which holds only some of the rows; Tensor(x) and "
                "x.numpy() have all rows, with zeros in the others"
            )

    def tolist(self) -> Any:
        """The elements as nested lists of numbers."""
        self._refuse_sparse("tolist()")
        self._read("tolist()")
        return computable(self._array).tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        self._read("the array")
        if self._kind.device != CPU or self.type is VarType.SELECTED_ROWS or self.dtype is VarType.BF16:
            return self.numpy() if dtype is None else self.numpy().astype(dtype)
        array = self._array.view()
        array.flags.writeable = False  # changes that are not counted as versions would make gradients wrong
        return np.asarray(array, dtype) if copy is None else np.array(array, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Operators of numpy arrays defer to those here; `fluid.numpy` computes functions of numpy."""
        reflected = reflected_method(self, ufunc, method, inputs, kwargs)
        if reflected is not None:
            return getattr(self, reflected)(inputs[0])
        from ..numpy.numpy_functions import call_function

        return call_function(ufunc if method == "__call__" else getattr(ufunc, method), inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Functions of numpy are computed by `fluid.numpy`, if it has them."""
        from ..numpy.numpy_functions import call_function

        return call_function(function, args, kwargs)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Its memory for another library, which shares it: ``torch.from_dlpack(x)``. Changes there are not noticed here.

        Args:
            stream: None on the CPU.
            max_version: the newest version of DLPack that the other library knows.
            dl_device: the device to give the memory on; by default where it is.
            copy: True for a copy, False for an error where one would be needed.
        """
        self._refuse_sparse("__dlpack__()")
        self._read("__dlpack__()")
        options = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        return self._array.__dlpack__(**{name: value for name, value in options.items() if value is not None})

    def __dlpack_device__(self) -> Any:
        """The kind and number of its device, as DLPack numbers them."""
        self._refuse_sparse("__dlpack_device__()")
        return self._array.__dlpack_device__()

    def __len__(self) -> int:
        if not self.shape:
            raise FluidTypeError("a tensor without dimensions has no length")
        if state.sizes is not None:
            state.sizes.note_size(self)
        return self._kind.shape[0]

    def __bool__(self) -> bool:
        """The value of the one element. Several count as True, since ``if bias:`` asks whether there is a tensor; several bools
        raise a `ProgramError`."""
        if self.size > 1 and self.dtype is not VarType.BOOL:
            return True
        return bool(self._scalar("bool"))

    def __int__(self) -> int:
        return int(self._scalar("int"))

    def __float__(self) -> float:
        return float(self._scalar("float"))

    def __index__(self) -> int:
        if self._kind.numpy_dtype.kind not in "iu":
            raise FluidTypeError(f"{self._kind} cannot be an index; an integer can")
        return int(self._scalar("an index"))

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.size == 1 and spec else format(repr(self), spec)

    def _scalar(self, purpose: str) -> Any:
        self._read(f"{purpose}()" if purpose in ("bool", "int", "float") else "the use as an index")
        if self.size != 1:
            advice = "; reduce_all or reduce_any makes one of them" if purpose == "bool" else ""
            raise ProgramError(f"{self._kind} cannot become {purpose}: it has {self.size} elements, not one{advice}")
        return computable(self._array).item()

    def __iter__(self) -> Iterator[Tensor]:
        return (self[number] for number in range(len(self)))

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        """The tensor as text; `throw_on_error` and `with_details` have no effect."""
        return repr(self)

    def __repr__(self) -> str:
        if state.tracer is not None:
            state.tracer.note_print(self)
        values = np.array2string(self._host(), separator=", ", prefix="Tensor(")
        if self._edge is not None:
            graph = f", grad_fn={self._edge[0]!r}"
        else:
            graph = "" if self._stop else ", stop_gradient=False"
        device = "" if self.device == CPU else f", device={self.device}"
        return f"Tensor({values}, shape={list(self.shape)}, dtype={self.dtype.text}{device}{graph})"

    __str__ = __repr__

    def __reduce__(self) -> Any:
        return _unpickled, (self.numpy(), self._stop, self._name, self.lod)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if self._edge is not None:
            raise ProgramError(f"{self.name} was computed by {self._edge[0].name}; only leaves can be deep-copied: use clone()")
        copy = type(self).__new__(type(self))
        memo[id(self)] = copy
        copy._array, copy._kind, copy._version = self._array.copy(), self._kind, [0]
        copy._edge = copy._hooks = copy._accumulator = None
        if state.tracer is not None:
            copy._grad = None
            state.tracer.bind_copy(copy, self, stop=True)
        else:
            copy._grad = None if self._grad is None else self._grad.detach().clone()
        copy._stop, copy._name = self._stop, self._name
        copy.__dict__.update(self.__dict__)
        return copy

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """`fluid.numpy`, the functions of the Python array API standard, which take tensors and return its arrays.

        Args:
            api_version: a version of the standard, such as ``"2024.12"``; those since 2021.12 are served by the same functions.
        """
        from .. import numpy as namespace

        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ProgramError(
                f"fluid.numpy serves version {namespace.__array_api_version__} of the standard, not {api_version!r}"
            )
        return namespace

    # -- operators
    def _described(self) -> str:
        return str(self._kind)

    def _operand(self, value: Any) -> Any:
        """The other operand as a tensor; numbers are converted to this element type."""
        if isinstance(value, Tensor):
            return value
        if isinstance(value, numbers.Number):
            return self._constant(value)
        if hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, ValueOperators):
            return Tensor._of(array_of(value))
        if isinstance(value, Variable):
            raise FluidTypeError(
                f"{self.name} is a tensor, and {value.name} is a Variable of a program, which has no value until that runs; "
                "one op cannot take both"
            )
        return None

    def _binary(self, op_type: str, operand: Any, swap: bool = False) -> Any:
        if not isinstance(operand, Tensor) and isinstance(operand, Variable) and (twin := parts.twins.twin_of(self)) is not self:
            return twin._binary(op_type, operand, swap)
        operand = self._operand(operand)
        if operand is None:
            return NotImplemented
        op = getattr(parts.ops.namespace, op_type)
        return op(operand, self) if swap else op(self, operand)

    def __add__(self, operand: Any) -> Any:
        return parts.ops.add(self, operand) if isinstance(operand, Tensor) else super().__add__(operand)

    __radd__ = __add__

    def __sub__(self, operand: Any) -> Any:
        return parts.ops.sub(self, operand) if isinstance(operand, Tensor) else super().__sub__(operand)

    def __mul__(self, operand: Any) -> Any:
        if isinstance(operand, Tensor):
            return parts.ops.mul(self, operand)
        return (
            parts.ops.scaled(self, operand) if type(operand) is float and self._kind.differentiable else super().__mul__(operand)
        )

    __rmul__ = __mul__

    def __truediv__(self, operand: Any) -> Any:
        return parts.ops.div(self, operand) if isinstance(operand, Tensor) else super().__truediv__(operand)

    def __matmul__(self, operand: Any) -> Any:
        return parts.ops.matmul(self, operand) if isinstance(operand, Tensor) else self._binary("matmul_v2", operand)

    def __rmatmul__(self, operand: Any) -> Any:
        return self._binary("matmul_v2", operand, swap=True)

    def __eq__(self, operand: Any) -> Any:
        return self._compare("equal", operand)

    def __ne__(self, operand: Any) -> Any:
        return self._compare("not_equal", operand)

    __hash__ = object.__hash__

    def __invert__(self) -> Any:
        return parts.ops.namespace.logical_not(self)

    def __and__(self, operand: Any) -> Any:
        return self._binary("logical_and", operand)

    def __or__(self, operand: Any) -> Any:
        return self._binary("logical_or", operand)

    def __xor__(self, operand: Any) -> Any:
        return self._binary("logical_xor", operand)

    def __getitem__(self, item: Any) -> Tensor:
        """A copy of some elements, through which gradients flow; it shares no memory with this tensor.

        So ``x[0].add_(1)`` and ``x[0][1] = 2`` change only a copy; ``x[0] += 1`` and ``x[0, 1] = 2`` change `x`.
        """
        return parts.ops.getitem((self, item), {})

    def __setitem__(self, item: Any, value: Any) -> None:
        self._refuse_sparse("setitem")
        parts.ops.setitem(self, item, value)

    # -- ops as methods; `fluid.eager.methods` adds ops of one tensor
    @property
    def T(self) -> Tensor:
        """The tensor with its dimensions in reverse order."""
        return self.transpose()

    def transpose(self, *axes: Any) -> Tensor:
        """The tensor with its dimensions in another order; in reverse by default."""
        order = _numbers(axes) or range(self.ndim - 1, -1, -1)
        return parts.ops.namespace.transpose2(self, axis=list(order))  # type: ignore[no-any-return]

    def reshape(self, *shape: Any) -> Tensor:
        """The same elements in another shape; one dimension may be -1."""
        wanted = shape[0] if len(shape) == 1 and _is_list(shape[0]) else shape
        if any(isinstance(size, TracedSize) for size in wanted):
            return parts.ops.reshape(self, list(wanted))  # type: ignore[no-any-return]
        numbers = _numbers(wanted)
        sizes = self._new_shape(numbers)
        if state.tracer is not None and -1 in numbers and self.size:
            sizes = tuple(numbers)  # a program may have another size there
        if sizes and all(sizes):
            return parts.ops.namespace.reshape2(self, shape=sizes)  # type: ignore[no-any-return]
        like = Tensor._of(self._kind.xp.empty(sizes, self._kind.numpy_dtype))  # [] and 0 have other meanings in reshape2
        return parts.ops.namespace.reshape_like(self, like)  # type: ignore[no-any-return]

    def _new_shape(self, sizes: list[int]) -> tuple[int, ...]:
        known_size = prod(size for size in sizes if size != -1)
        if sizes.count(-1) == 1 and known_size and self.size % known_size == 0:
            sizes = [self.size // known_size if size == -1 else size for size in sizes]
        if -1 in sizes or prod(sizes) != self.size:
            raise ProgramError(f"{self._kind} cannot have the shape {sizes}: it has {self.size} elements")
        return tuple(sizes)

    def sum(self, axis: Any = None, keepdim: bool = False) -> Tensor:
        """The sum over one dimension, `axis`, over several, or over all; with `keepdim`, they stay with size 1."""
        return _reduced("reduce_sum", self, axis, keepdim)

    def mean(self, axis: Any = None, keepdim: bool = False) -> Tensor:
        """The mean over one dimension, `axis`, over several, or over all; with `keepdim`, they stay with size 1."""
        return _reduced("reduce_mean", self, axis, keepdim)

    def max(self, axis: Any = None, keepdim: bool = False) -> Tensor:
        """The maximum over one dimension, `axis`, over several, or over all; with `keepdim`, they stay with size 1."""
        return _reduced("reduce_max", self, axis, keepdim)

    def min(self, axis: Any = None, keepdim: bool = False) -> Tensor:
        """The minimum over one dimension, `axis`, over several, or over all; with `keepdim`, they stay with size 1."""
        return _reduced("reduce_min", self, axis, keepdim)

    def prod(self, axis: Any = None, keepdim: bool = False) -> Tensor:
        """The product over one dimension, `axis`, over several, or over all; with `keepdim`, they stay with size 1."""
        return _reduced("reduce_prod", self, axis, keepdim)

    def matmul(self, other: Any) -> Tensor:
        """The product of matrices: ``x @ other``."""
        return self @ other  # type: ignore[no-any-return]

    def squeeze(self, *axes: Any) -> Tensor:
        """The tensor without these dimensions of size 1, by default without any of size 1."""
        return parts.ops.namespace.squeeze2(self, axes=_numbers(axes))  # type: ignore[no-any-return]

    def unsqueeze(self, *axes: Any) -> Tensor:
        """The tensor with dimensions of size 1 inserted at these positions."""
        return parts.ops.namespace.unsqueeze2(self, axes=_numbers(axes))  # type: ignore[no-any-return]

    def program(self) -> Any:
        """The recorded graph that it was computed by as a `Program`, for inspection."""
        return parts.passes.program_of(self)

    # -- in place
    def _modified(self, by: str) -> None:
        self._version[0] += 1
        self._version[1:] = [by, user_line()]

    def _check_writable(self, by: str) -> None:
        if isinstance(self._array, np.ndarray) and not self._array.flags.writeable:
            raise ProgramError(
                f"{by}: {self.name} shares the memory of a read-only array (of jax, or with writeable=False); "
                "modify its clone() instead"
            )

    def _check_modifiable(self, by: str) -> None:
        self._check_writable(by)
        if state.recording and not self._stop and self._edge is None:
            instead = f"write x = x {by[:-1]} y, which makes a new tensor" if by in _OPERATORS else "modify a clone()"
            raise BackwardError(
                f"{by}: {self.name} is a leaf that requires a gradient, and cannot be modified in place while ops are recorded; "
                f"do it inside no_grad(), or {instead}"
            )

    def _take_over(self, result: Tensor, by: str) -> Tensor:
        """Copy the elements of `result` into this tensor's memory, and take over its edge."""
        before, after = self._kind, result._kind
        if after is not before and (after.shape, after.dtype, after.spec.type) != (before.shape, before.dtype, before.spec.type):
            instead = f"write x = x {by[:-1]} y" if by in _OPERATORS else "an op that makes a new tensor can"
            raise ProgramError(f"{by}: the result is {after}, and {self.name} ({before}) cannot hold it in place; {instead}")
        if state.tracer is not None:
            state.tracer.prepare_write(self, by)
        if isinstance(self._array, SelectedRows):
            self._array.index, self._array.value = result._array.index, result._array.value
        else:
            before.xp.copyto(self._array, result._array)
        if state.tracer is not None:
            state.tracer.trace_write(self, result)
        if not result._stop or state.recording:
            self._move_to(result._edge)
        self._modified(by)
        return self

    def _move_to(self, edge: _Edge | None) -> None:
        """Replace the edge, None for a leaf; `retain_grads` applies to the new one."""
        if self._edge is not None and self._edge[0]._hooks is not None:
            retained = self._edge[0]._hooks.retained
            if self._edge[1] in retained and retained[self._edge[1]]() is self:
                reference = retained.pop(self._edge[1])
                if edge is not None:
                    edge[0]._all_hooks().retained[edge[1]] = reference
        self._edge, self._stop = edge, edge is None
        keep_gradient(self)

    def _in_place(self, op_type: str, *operands: Any, **attrs: Any) -> Tensor:
        by = op_type + "_"
        self._check_modifiable(by)
        before = self._input_before_write(op_type, *operands)
        if op_type.startswith("elementwise_"):
            for operand in operands:
                if isinstance(operand, numbers.Number):
                    self._number(operand)
        tensors = [before if operand is self else self._in_place_operand(operand, by) for operand in operands]
        return self._take_over(getattr(parts.ops.namespace, op_type)(before, *tensors, **attrs), by)

    def _in_place_operand(self, value: Any, by: str) -> Tensor:
        """An argument of an in-place op as a tensor; numbers, also in lists, are converted to this element type."""
        tensor = self._operand(value)
        return Tensor._of(self._values(value, by)) if tensor is None else tensor

    def _values(self, value: Any, by: str) -> Any:
        """Python numbers, also in lists, as an array of this element type; an error where the conversion would lose something."""
        array = np.asarray(value)
        if array.dtype.kind not in "biufc":
            if isinstance(value, numbers.Number):
                self._check_number(value)  # raises if it is too large
            raise FluidTypeError(f"{by} takes a tensor, a number, or an array or a list of numbers, not {value!r}")
        if not self._kind.differentiable and array.dtype.kind != "c":
            with np.errstate(invalid="ignore"):
                lost = array[(array % 1 != 0) | ((array != 0) & (array != 1) if self.dtype is VarType.BOOL else False)]
            if lost.size:
                self._check_number(lost[0].item())
        try:
            if array.size and self.dtype is not VarType.BOOL and array.dtype.kind == "f" and not self._kind.differentiable:
                np.array([int(array.min()), int(array.max())], self._kind.numpy_dtype)  # raises if out of range
            if self.dtype is VarType.BF16:
                return converted(array, BFLOAT16)
            return self._kind.xp.asarray(value, self._kind.numpy_dtype)
        except (OverflowError, TypeError, ValueError) as error:
            raise ProgramError(f"{by}: {self._kind} cannot hold {value!r}: {error}") from None

    def _input_before_write(self, op_type: str, *operands: Any) -> Tensor:
        """The input of an op whose result replaces this tensor: a copy if backward needs the value, else the tensor itself."""
        rule = registry.get(op_type).rule
        if not state.recording or not isinstance(rule, Rule):
            return self
        if rule.inputs.get("X") is not False and not (
            rule.inputs.get("Y") is False and any(operand is self for operand in operands)
        ):
            return self
        before = make(self._array.copy(), self._kind, self._edge)
        if state.tracer is not None:
            state.tracer.bind_copy(before, self)
        return before

    def _augmented(self, sign: str, operand: Any) -> Any:
        """``self <sign> other``, such as ``+=``, computed by the ops of the binary operator."""
        op_type, operator = _OPERATORS[sign]
        self._check_modifiable(sign)
        scales = isinstance(operand, numbers.Number) and sign in ("+=", "-=", "*=", "/=")
        before = self._input_before_write("scale" if scales else op_type, operand)
        result = operator(before, before if operand is self else operand)
        return result if result is NotImplemented else self._take_over(result, sign)

    def __iadd__(self, operand: Any) -> Any:
        return self._augmented("+=", operand)

    def __isub__(self, operand: Any) -> Any:
        return self._augmented("-=", operand)

    def __imul__(self, operand: Any) -> Any:
        return self._augmented("*=", operand)

    def __itruediv__(self, operand: Any) -> Any:
        return self._augmented("/=", operand)

    def __ifloordiv__(self, operand: Any) -> Any:
        return self._augmented("//=", operand)

    def __imod__(self, operand: Any) -> Any:
        return self._augmented("%=", operand)

    def __ipow__(self, operand: Any) -> Any:
        return self._augmented("**=", operand)

    def __iand__(self, operand: Any) -> Any:
        return self._augmented("&=", operand)

    def __ior__(self, operand: Any) -> Any:
        return self._augmented("|=", operand)

    def __ixor__(self, operand: Any) -> Any:
        return self._augmented("^=", operand)

    def add_(self, other: Any) -> Tensor:
        """Add in place."""
        return self._in_place("elementwise_add", other)

    def sub_(self, other: Any) -> Tensor:
        """Subtract in place."""
        return self._in_place("elementwise_sub", other)

    def mul_(self, other: Any) -> Tensor:
        """Multiply in place."""
        return self._in_place("elementwise_mul", other)

    def div_(self, other: Any) -> Tensor:
        """Divide in place."""
        return self._in_place("elementwise_div", other)

    def scale_(self, scale: float = 1.0, bias: float = 0.0) -> Tensor:
        """``x * scale + bias`` with `scale` and `bias`, in place."""
        return self._in_place("scale", scale=self._number(scale), bias=self._number(bias))

    def fill_(self, value: float) -> Tensor:
        """Set every element to this value."""
        self._check_number(value)
        if not self._is_large(value):
            return self._in_place("fill_any_like", value=float(value), dtype=-1)
        self._check_modifiable("fill_")
        return self._take_over(parts.ops.namespace.fill_any_like(self, value=0.0, dtype=-1) + value, "fill_")

    def zero_(self) -> Tensor:
        """Set every element to zero."""
        return self.fill_(0.0)

    def copy_(self, other: Any) -> Tensor:
        """Copy the elements of a tensor, or of anything like an array, of this shape."""
        other = (other if isinstance(other, Tensor) else Tensor._of(array_of(other))).astype(self.dtype)
        self._check_modifiable("copy_")
        return self._take_over(other if other._stop else other.clone(), "copy_")

    def pow_(self, exponent: Any) -> Tensor:
        """Raise to a power in place."""
        return self._in_place("elementwise_pow", exponent)

    def clip_(self, min: float, max: float) -> Tensor:
        """Clip the elements to ``[min, max]``, from `min` to `max`, in place."""
        return self._in_place("clip", min=self._number(min), max=self._number(max))

    def masked_fill_(self, mask: Tensor, value: float) -> Tensor:
        """Set the elements where `mask`, of bools and of this shape, holds to `value`."""
        self._check_modifiable("masked_fill_")
        filled = self.detach().clone().fill_(value)
        return self._take_over(parts.ops.namespace.where(mask, filled, self), "masked_fill_")

    def scatter_(self, index: Tensor, updates: Tensor, overwrite: bool = True) -> Tensor:
        """Replace rows in place.

        Args:
            index: the indices of the rows.
            updates: the rows to put there.
            overwrite: False to sum updates with the same index.
        """
        self._check_modifiable("scatter_")
        return self._take_over(parts.ops.namespace.scatter(self, index, updates, overwrite=overwrite), "scatter_")

    def set_value(self, value: Any) -> None:
        """Replace the elements by new ones of the same shape; not recorded, and allowed for leaves that require a gradient."""
        self._refuse_sparse("set_value")
        array = array_of(value._array if isinstance(value, Tensor) else value, self.dtype)
        if tuple(array.shape) != self.shape:
            raise ProgramError(f"{self.name} is {self._kind}; it cannot be given a value of shape {list(array.shape)}")
        self._check_writable("set_value")
        if state.tracer is not None:
            state.tracer.prepare_write(self, "set_value")
        self._kind.xp.copyto(self._array, self._kind.xp.asarray(array))
        if state.tracer is not None:
            state.tracer.trace_write(self, value)
        self._modified("set_value")


Variable.register(Tensor)
Tensor._computed_as = Tensor
_new = Tensor.__new__
_OPERATORS: Mapping[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "+=": ("elementwise_add", Tensor.__add__),
    "-=": ("elementwise_sub", Tensor.__sub__),
    "*=": ("elementwise_mul", Tensor.__mul__),
    "/=": ("elementwise_div", Tensor.__truediv__),
    "//=": ("elementwise_floordiv", Tensor.__floordiv__),
    "%=": ("elementwise_mod", Tensor.__mod__),
    "**=": ("elementwise_pow", Tensor.__pow__),
    "&=": ("logical_and", Tensor.__and__),
    "|=": ("logical_or", Tensor.__or__),
    "^=": ("logical_xor", Tensor.__xor__),
}
"""In-place operator -> the op, and the method of the binary operator."""


def make(array: Any, kind: ArrayType, edge: _Edge | None = None, version: list[Any] | None = None) -> Tensor:
    """A tensor that takes ownership of an array."""
    tensor = _new(Tensor)
    tensor._array = array
    tensor._kind = kind
    tensor._edge = edge
    tensor._stop = edge is None
    tensor._version = [0] if version is None else version
    tensor._grad = tensor._hooks = tensor._accumulator = tensor._name = None
    return tensor


def of_class_of(source: Tensor, result: Tensor) -> Tensor:
    """A new tensor in the class of results from `source`."""
    if source._computed_as is not Tensor:
        result.__class__ = source._computed_as
    return result


def to_tensor(data: Any, dtype: DTypeLike | None = None, stop_gradient: bool = True) -> Tensor:
    """A tensor of a copy of anything like an array.

    Args:
        data: the array, or nested lists of numbers, or a tensor.
        dtype: element type; by default the type of `data`, and float32 for Python's floats.
        stop_gradient: whether the tensor requires no gradient.

    >>> dygraph.to_tensor([[1, 2], [3, 4]])
    Tensor([[1, 2],
            [3, 4]], shape=[2, 2], dtype=int64)
    """
    return Tensor(data, dtype, stop_gradient)


def from_dlpack(other: Any) -> Tensor:
    """A tensor that shares the memory of an array of torch, cupy, jax or numpy; a copy if that is not contiguous.

    In-place ops refuse read-only memory, such as jax's. In the other direction, torch, cupy and numpy share a tensor's memory by
    their own ``from_dlpack``; jax does where it is aligned to 64 bytes, and copies other memory.

    Args:
        other: an object with ``__dlpack__`` and ``__dlpack_device__``.

    Raises:
        FluidTypeError: it has no ``__dlpack__``, is on a device that is neither the CPU nor a CUDA device, or has an element type
            that tensors lack.

    >>> array = np.array([1.0, 2.0], "float32")
    >>> x = dygraph.from_dlpack(array)
    >>> x.add_(1.0)
    Tensor([2., 3.], shape=[2], dtype=float32)
    >>> array, np.from_dlpack(x) is not array
    (array([2., 3.], dtype=float32), True)
    """
    device = getattr(other, "__dlpack_device__", None)
    if device is None:
        raise FluidTypeError(f"{_type_name(other)} has no __dlpack__; give a tensor of torch, cupy or jax, or an array of numpy")
    kind, _ = device()
    if kind not in (*HOST_MEMORY, *CUDA_MEMORY):
        raise FluidTypeError(f"{_type_name(other)} lies on a device of DLPack's kind {kind}; move it to the CPU first")
    xp = np if kind in HOST_MEMORY else import_cupy()
    try:
        array = xp.from_dlpack(other)
    except RuntimeError as error:  # numpy's, of an element type that it lacks
        raise FluidTypeError(f"{_type_name(other)}: {error} Cast it to an element type that numpy has") from None
    return Tensor._of(array if array.flags.c_contiguous else xp.ascontiguousarray(array))


def _unpickled(array: Any, stop: bool, name: str | None, lod: Lod = ()) -> Tensor:
    tensor = Tensor(array, stop_gradient=stop, name=name, copy=False)
    tensor._kind = array_type_of(tensor._array, lod)
    return tensor


def _lod_of(value: Any) -> Lod:
    """The sequences that the rows of a tensor form, or of the value of a variable; ``()`` for other values."""
    if isinstance(value, LoDTensor):
        return to_lod(value.lod(), len(value.array)) if value.array is not None else ()
    return value._kind.lod if isinstance(value, Tensor) else lod_of(value)


def _type_name(value: Any) -> str:
    return type(value).__name__


def _numbers(values: Sequence[Any]) -> list[int]:
    """Integers passed one by one, or in a list, an array or a range."""
    if len(values) == 1 and _is_list(values[0]):
        values = values[0]
    return [int(number) for number in values]


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple, range)) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _reduced(op_type: str, x: Tensor, axis: Any, keepdim: bool) -> Tensor:
    axes = [] if axis is None else _numbers(axis if _is_list(axis) else (axis,))
    op = getattr(parts.ops.namespace, op_type)
    return op(x, dim=axes, keep_dim=keepdim) if axes else op(x, keep_dim=keepdim, reduce_all=True)  # type: ignore[no-any-return]


class _Held(LoDTensor):
    """A tensor's value as in a scope: a read-only view whose value can be set."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(np.asarray(tensor))
        self.set_lod([level for level in tensor.lod if level is not None])
        self._tensor = tensor

    def set(self, array: Any, place: Place | None = None) -> None:
        """Give the tensor a copy of `array` as its value, where the tensor is."""
        self._tensor.set_value(array)
        self._array = np.asarray(self._tensor)
