"""Attributes of parameters: name, initializer, learning rate, regularizer, whether they are trained."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Union

from .errors import FluidTypeError
from .initializer import Initializer
from .ir.checked import check_number
from .ir.program import Variable
from .not_here import names_here
from .regularizer import WeightDecayRegularizer

__all__ = ["AttrLike", "ParamAttr", "WeightNormParamAttr"]

__dir__ = names_here(__name__)


class ParamAttr:
    """Attributes of a parameter.

    Args:
        name: of the parameter; generated if None. Layers that give the same name share the parameter.
        initializer: by default the layer's choice (Xavier for weights, zero for biases).
        learning_rate: factor on the optimizer's learning rate.
        regularizer: weight decay of this parameter, in place of the optimizer's.
        trainable: whether optimizers change it.
        gradient_clip: how its gradient is clipped.
        do_model_average: whether averages of parameters include it.

    >>> attr = fluid.ParamAttr("shared", fluid.initializer.Normal(scale=0.02), learning_rate=0.5)
    >>> a, b = (layers.fc(fluid.data(name, [-1, 4]), 8, param_attr=attr) for name in "ab")
    >>> [param.name for param in fluid.default_main_program().all_parameters()]
    ['shared', 'fc_0.b_0', 'fc_1.b_0']
    """

    def __init__(
        self,
        name: str | None = None,
        initializer: Initializer | None = None,
        learning_rate: float = 1.0,
        regularizer: WeightDecayRegularizer | None = None,
        trainable: bool = True,
        gradient_clip: Any = None,
        do_model_average: bool = True,
    ) -> None:
        check_number(learning_rate, "ParamAttr: learning_rate")
        self.name = name
        self.initializer = initializer
        self.learning_rate = learning_rate
        self.regularizer = regularizer
        self.trainable = trainable
        self.gradient_clip = gradient_clip
        self.do_model_average = do_model_average

    @staticmethod
    def _to_attr(arg: Any) -> Any:
        """The `ParamAttr` for an argument ``param_attr=arg``.

        None and True mean defaults, False no parameter (returned as it is), a string a name, an initializer or a regularizer that
        attribute, and an eager tensor a parameter to use; a list or tuple gives a list.
        """
        if arg is None or arg is True:
            return ParamAttr()
        if arg is False or isinstance(arg, ParamAttr):
            return arg
        if isinstance(arg, str):
            return ParamAttr(name=arg)
        if isinstance(arg, Initializer):
            return ParamAttr(initializer=arg)
        if isinstance(arg, WeightDecayRegularizer):
            return ParamAttr(regularizer=arg)
        if isinstance(arg, (list, tuple)):
            return [ParamAttr._to_attr(item) for item in arg]
        if isinstance(arg, Variable) and arg.block.program.eager:
            return GivenParameter(arg)
        raise FluidTypeError(
            f"{arg!r} does not describe a parameter; give a ParamAttr, a name, an initializer, a regularizer, None or False"
        )

    def _to_kwargs(self) -> dict[str, Any]:
        """The arguments of `Parameter` that do not depend on the layer."""
        return {
            "name": self.name,
            "optimize_attr": {"learning_rate": self.learning_rate},
            "regularizer": self.regularizer,
            "trainable": self.trainable,
            "gradient_clip_attr": self.gradient_clip,
            "do_model_average": self.do_model_average,
        }

    def __repr__(self) -> str:
        defaults = vars(type(self)())
        settings = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if value != defaults[name])
        return f"{type(self).__name__}({settings})"


class WeightNormParamAttr(ParamAttr):
    """Weight normalization: ``g * v / norm(v)``, with length and direction trained separately.

    ``v``, called ``<name>_v``, has the shape and initializer of the parameter. The Euclidean norm goes over all dimensions except
    `dim`, or over all if `dim` is None; ``g``, ``<name>_g``, has one element for each norm (and the number of dimensions of
    ``v``), and is initialized to the norm of ``v``, so that the weight initially equals ``v``. Source: Salimans and Kingma,
    Weight normalization: A simple reparameterization to accelerate training of deep neural networks, 2016.

    Args:
        dim: the dimension whose parts have lengths of their own; None for one length.
        name, initializer, learning_rate, regularizer, trainable, gradient_clip, do_model_average: see `ParamAttr`.

    >>> hidden = layers.fc(fluid.data("x", [-1, 4]), 8, param_attr=fluid.WeightNormParamAttr(dim=1, name="w"), bias_attr=False)
    >>> [(param.name, param.shape) for param in fluid.default_main_program().all_parameters()]
    [('w_v', (4, 8)), ('w_g', (1, 8))]
    """

    params_with_weight_norm: ClassVar[list[Variable]] = []
    """The weights computed in programs."""

    def __init__(
        self,
        dim: int | None = None,
        name: str | None = None,
        initializer: Initializer | None = None,
        learning_rate: float = 1.0,
        regularizer: WeightDecayRegularizer | None = None,
        trainable: bool = True,
        gradient_clip: Any = None,
        do_model_average: bool = False,
    ) -> None:
        super().__init__(name, initializer, learning_rate, regularizer, trainable, gradient_clip, do_model_average)
        self.dim = dim


class GivenParameter(ParamAttr):
    """An eager tensor that a layer uses instead of making a parameter."""

    def __init__(self, tensor: Variable) -> None:
        super().__init__()
        self.tensor = tensor

    def __repr__(self) -> str:
        return self.tensor.name


AttrLike = Union[ParamAttr, str, Initializer, WeightDecayRegularizer, Literal[False], bool, None]
