"""Layers, the functions that build programs. Each layer appends ops to the default main program, and returns the variables of its
results.

Given tensors of eager mode, layers compute at once; those with parameters are objects of `fluid.dygraph`, such as `LayerOf`.

Shapes stand in brackets, as ``[N, C, H, W]``, where ``...`` are any dimensions. A size that only a run tells is -1, and declared
as None. *Sequences* are rows of one tensor: the rows of the first sequence, then the rows of the second, and so on
(``lod_level=1``); `fluid.create_lod_tensor` makes them. Results have the element type of the inputs unless a layer says
otherwise.

*Attributes* of a parameter are a `ParamAttr`, or a name, an initializer or a regularizer for it. Unless they or the layer say
otherwise, weights begin with Xavier's values (`fluid.initializer.Xavier`) and biases with zeros.

Errors name the layer, the argument and the user's line. A layer raises a `FluidTypeError` for an argument of another type than
its annotation says, an `ElementTypeError` for elements that it does not take, an `InferenceError` where shapes do not fit, and
and a `ProgramError`, their base class, for other invalid values. Errors that only a run can detect, such as an id beyond its
table, are an `IndexRangeError` or another `ExecutionError`.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..not_here import names_here, names_not_here
from . import collective as collective
from . import device as device
from . import dynamic_rnn
from . import sequence_lod as sequence_lod
from . import utils as utils
from .arguments import check_layers
from .arrays import *  # noqa: F403
from .control_flow import *  # noqa: F403
from .debug import *  # noqa: F403
from .decode_helpers import *  # noqa: F403
from .descriptions import describe_layers
from .detection import *  # noqa: F403
from .distributions import *  # noqa: F403
from .dynamic_rnn import *  # noqa: F403
from .io import *  # noqa: F403
from .layer_function_generator import *  # noqa: F403
from .learning_rate_scheduler import *  # noqa: F403
from .loss import *  # noqa: F403
from .metric_op import *  # noqa: F403
from .nms import *  # noqa: F403
from .nn import *  # noqa: F403
from .ops import *  # noqa: F403
from .proposals import *  # noqa: F403
from .recommendation import *  # noqa: F403
from .rnn import *  # noqa: F403
from .sequence import *  # noqa: F403
from .structured import *  # noqa: F403
from .tensor import *  # noqa: F403
from .vision import *  # noqa: F403

describe_layers(globals())
check_layers(globals())
del check_layers, describe_layers

if not TYPE_CHECKING:
    _HELPERS = ("autodoc", "deprecated", "templatedoc")  # decorators of layers, which scripts may import
    __all__ = sorted(
        name
        for name, value in globals().items()
        if getattr(value, "__module__", "").startswith(f"{__name__}.") and name not in _HELPERS and not name.startswith("_")
    )
    __getattr__ = names_not_here(__name__)
    __dir__ = names_here(__name__)


def _hand_on(module: str) -> None:
    """Give a module the layers that Fluid 1.6 defines there but another module defines here."""
    not_here = names_not_here(module)

    def get(name: str) -> Any:
        for layers in (globals(), vars(dynamic_rnn)):
            if callable(layers.get(name)) and not name.startswith("_"):
                return layers[name]
        return not_here(name)

    sys.modules[module].__dict__["__getattr__"] = get


class _ModuleOfRnn(ModuleType):
    """The module `rnn`, callable like the layer `rnn`: importing the module under another name puts it in the layer's place."""

    __call__ = staticmethod(globals()["rnn"])


sys.modules[f"{__name__}.rnn"].__class__ = _ModuleOfRnn

for _name in ("control_flow", "detection", "io", "learning_rate_scheduler", "loss", "metric_op", "nn", "ops", "rnn", "tensor"):
    _hand_on(f"{__name__}.{_name}")
