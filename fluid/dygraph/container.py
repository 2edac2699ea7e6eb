"""Layers that hold layers or parameters in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..building.weight_norm import WeightNorm
from ..errors import FluidTypeError, ProgramError, type_name
from .layers import Layer

__all__ = ["FunctionLayer", "LayerList", "ParameterList", "Sequential"]


class FunctionLayer(Layer):
    """A function of tensors as a layer; `Sequential` makes it of the functions among its layers.

    Args:
        function: the function.

    Raises:
        FluidTypeError: it cannot be called.

    >>> net = dygraph.Sequential(dygraph.Linear(2, 3), lambda x: x * 0.0)
    >>> net(dygraph.Tensor([[1.0, 2.0]])).numpy()
    array([[0., 0., 0.]], dtype=float32)
    """

    def __init__(self, function: Any) -> None:
        if not callable(function):
            hint = "; give layers one by one: Sequential(*layers)" if isinstance(function, (list, tuple)) else ""
            raise FluidTypeError(f"a layer or a function is wanted, not {type_name(function)}{hint}")
        super().__init__()
        self._called = function

    def forward(self, *inputs: Any) -> Any:
        return self._called(*inputs)


class Sequential(Layer):
    """Layers, each called with the output of the one before it.

    Args:
        name_scope: the start of its name, as in Fluid 1.6; or the first of the layers.
        layers: layers or functions of a tensor, or pairs of a name and one.

    >>> net = dygraph.Sequential(dygraph.Linear(4, 8, act="relu"), dygraph.Linear(8, 1))
    >>> net(dygraph.Tensor(np.ones([2, 4], "float32"))).shape
    (2, 1)
    """

    def __init__(self, name_scope: Any = None, *layers: Any) -> None:
        if name_scope is not None and not isinstance(name_scope, str):
            name_scope, layers = None, (name_scope, *layers)
        super().__init__(name_scope)
        for number, item in enumerate(layers):
            name, layer = item if isinstance(item, tuple) else (str(number), item)
            self.add_sublayer(name, layer if isinstance(layer, Layer) else FunctionLayer(layer))

    def forward(self, input: Any) -> Any:
        for layer in self._sub_layers.values():
            input = layer(input)
        return input

    def __getitem__(self, name: Any) -> Any:
        parts = list(self._sub_layers.values())
        if isinstance(name, slice):
            return Sequential(*parts[name])
        return parts[name] if isinstance(name, int) else self._sub_layers[str(name)]

    def __setitem__(self, name: Any, layer: Layer) -> None:
        if isinstance(name, int):
            name = list(self._sub_layers)[name]
        self.add_sublayer(str(name), layer)

    def __delitem__(self, name: Any) -> None:
        del self._sub_layers[list(self._sub_layers)[name] if isinstance(name, int) else str(name)]

    def __len__(self) -> int:
        return len(self._sub_layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self._sub_layers.values())


class _Numbered(Layer):
    """Base of `LayerList` and `ParameterList`."""

    _kind = ""

    @property
    def _items(self) -> dict[str, Any]:
        return self.__dict__[self._kind]  # type: ignore[no-any-return]

    def append(self, item: Any) -> Any:
        """Add an item at the end; returns this object."""
        return self.extend([item])

    def extend(self, items: Iterable[Any]) -> Any:
        """Add several items at the end; returns this object."""
        for item in items:
            add = self.add_sublayer if self._kind == "_sub_layers" else self.add_parameter
            add(str(len(self._items)), item)
        return self

    def insert(self, index: int, item: Any) -> None:
        """Insert an item before index `index`."""
        self._renumber([*(items := list(self._items.values()))[:index], item, *items[index:]])

    def _renumber(self, items: list[Any]) -> None:
        self._items.clear()
        self.extend(items)

    def __getitem__(self, index: Any) -> Any:
        chosen = list(self._items.values())[index]
        return type(self)(chosen) if isinstance(index, slice) else chosen

    def __setitem__(self, index: int, item: Any) -> None:
        items = list(self._items.values())
        items[index] = item
        self._renumber(items)

    def __delitem__(self, index: Any) -> None:
        items = list(self._items.values())
        del items[index]
        self._renumber(items)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._items.values()))

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        raise FluidTypeError(f"a {type(self).__name__} only holds its items and cannot be called; call these")


class LayerList(_Numbered):
    """A list of layers.

    Args:
        sublayers: the first layers.

    >>> parts = dygraph.LayerList([dygraph.Linear(4, 4) for _ in range(3)])
    >>> len(parts), len(parts.parameters())
    (3, 6)
    """

    _kind = "_sub_layers"

    def __init__(self, sublayers: Iterable[Layer] | None = None) -> None:
        super().__init__()
        self.extend(sublayers if sublayers is not None else ())


class ParameterList(_Numbered):
    """A list of parameters.

    Args:
        parameters: the first parameters.

    >>> weights = dygraph.ParameterList([dygraph.Parameter([1.0]), dygraph.Parameter([2.0])])
    >>> [name for name, _ in weights.named_parameters()]
    ['0', '1']
    """

    _kind = "_parameters"

    def __init__(self, parameters: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.extend(parameters if parameters is not None else ())

    def add_parameter(self, name: str, parameter: Any) -> Any:
        """Add a `parameter` under a `name`."""
        if isinstance(parameter, WeightNorm):
            raise ProgramError(
                f"a ParameterList holds parameters, and {parameter.name} is computed of two; assign it to an attribute of a layer"
            )
        return super().add_parameter(name, parameter)
