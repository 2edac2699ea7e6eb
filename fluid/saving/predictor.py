"""Predictions by the interface of Paddle 1.x's inference engine: configurations, tensors, `create_paddle_predictor`.

A predictor is a model of `load_model`, a scope and an `Executor`. Settings that only make Paddle's engine faster are accepted
without effect.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FluidTypeError, NameNotFoundError, ProgramError, did_you_mean
from ..executor import Executor
from ..executor.runtime.scope import Scope
from ..values.lod_tensor import LoDTensor
from ..values.place import CPUPlace, CUDAPlace, Place

if TYPE_CHECKING:
    from .models import Model


class PaddleDType:
    """Element types of a `PaddleTensor`.

    >>> fluid.core.PaddleDType.INT64
    'int64'
    """

    FLOAT32, INT64, INT32, UINT8 = TYPES = ("float32", "int64", "int32", "uint8")


class PaddleBuf:
    """The elements of a `PaddleTensor`, in one dimension.

    Args:
        data: an array, a list of numbers, or how many bytes.

    >>> fluid.core.PaddleBuf([1.0, 2.0]).float_data()
    [1.0, 2.0]
    """

    def __init__(self, data: Any = 0) -> None:
        if isinstance(data, int):
            self.resize(data)
        else:
            self.reset(data)

    def reset(self, data: Any) -> None:
        """Hold a copy of an array or a list; floats of a list are float32, integers int64."""
        array = np.array(data)
        if array.dtype == np.float64 and not hasattr(data, "dtype"):
            array = array.astype(np.float32)
        self._elements = array.reshape(-1)

    def resize(self, length: int) -> None:
        """Hold as much memory, in bytes, of zeros."""
        self._elements = np.zeros(length, np.uint8)

    def length(self) -> int:
        """The size in bytes."""
        return self._elements.nbytes

    def empty(self) -> bool:
        """Whether it holds nothing."""
        return not self.length()

    def float_data(self) -> list[float]:
        """The elements, read as float32."""
        return self.tolist("float32")

    def int64_data(self) -> list[int]:
        """The elements, read as int64."""
        return self.tolist("int64")

    def int32_data(self) -> list[int]:
        """The elements, read as int32."""
        return self.tolist("int32")

    def tolist(self, dtype: str = "float32") -> list[Any]:
        """The elements, read as an element type."""
        return list(self.view(dtype).tolist())

    def view(self, dtype: str) -> np.ndarray[Any, Any]:
        """The memory as an array of an element type."""
        return self._elements.view(dtype)


class PaddleTensor:
    """An array with a name and sequences, such as predictors take and return.

    Args:
        data: an array of float32, int64, int32 or uint8.
        name: the name of a feed or fetch.
        lod: offsets of sequences, level by level.

    Attributes:
        name, shape, lod: as given.
        data: the elements, a `PaddleBuf`.
        dtype: the element type, one of `PaddleDType`.

    >>> tensor = fluid.core.PaddleTensor(np.ones([2, 3], "float32"))
    >>> tensor.shape, tensor.dtype, tensor.data.length()
    ([2, 3], 'float32', 24)
    """

    def __init__(self, data: Any = None, name: str = "", lod: Sequence[Sequence[int]] = ()) -> None:
        array = np.zeros([0], np.float32) if data is None else np.asarray(data)
        if array.dtype.name not in PaddleDType.TYPES:
            raise FluidTypeError(f"PaddleTensor: data should be of float32, int64, int32 or uint8, not {array.dtype}")
        self.name = name
        self.shape: list[int] = list(array.shape)
        self.data = PaddleBuf(array)
        self.dtype = array.dtype.name
        self.lod: list[list[int]] = [list(level) for level in lod]

    def as_ndarray(self) -> np.ndarray[Any, Any]:
        """The elements as an array of numpy."""
        return self.data.view(self.dtype).reshape(self.shape)


class NativeConfig:
    """How a predictor is made, by attributes.

    Attributes:
        model_dir: a folder that `fluid.io.save_inference_model` wrote.
        prog_file, param_file: the program and the parameters, where they are single files.
        use_gpu, device: whether it computes on a GPU, and its number.
        specify_input_name: whether the names of tensors say which feeds they are; else their order does.

    >>> fluid.core.NativeConfig().use_gpu
    False
    """

    def __init__(self) -> None:
        self.model_dir = ""
        self.prog_file = ""
        self.param_file = ""
        self.use_gpu = False
        self.device = 0
        self.fraction_of_gpu_memory = -1.0
        self.specify_input_name = False

    def place(self) -> Place:
        """Where a predictor computes."""
        return CUDAPlace(self.device) if self.use_gpu else CPUPlace()

    def read(self) -> Model:
        """The model, in a scope of its own."""
        from .models import load_model

        if not self.model_dir and not self.prog_file:
            raise ProgramError(f"{type(self).__name__} names no model: give model_dir, or prog_file and param_file")
        path = os.path.join(self.model_dir, self.prog_file) if self.prog_file else self.model_dir
        return load_model(path, params=os.path.join(self.model_dir, self.param_file) if self.param_file else None, scope=Scope())


def _accepted(self: Any, *settings: Any, **more: Any) -> None:
    """Does nothing: the setting changes only how Paddle's engine computes.

    Args:
        settings, more: accepted without effect.
    """


class AnalysisConfig(NativeConfig):
    """How a predictor is made, by methods.

    Args:
        model: a folder, or the file of a program.
        params: the file of its parameters.

    >>> config = fluid.core.AnalysisConfig("model")
    >>> config.disable_gpu()
    >>> config.model_dir
    'model'
    """

    def __init__(self, model: str = "", params: str = "") -> None:
        super().__init__()
        self.set_model(model, params)

    def set_model(self, model: str, params: str = "") -> None:
        """Set the model.

        Args:
            model: a folder, or the file of a program.
            params: the file of its parameters.
        """
        self.model_dir, self.prog_file, self.param_file = ("", model, params) if params else (model, "", "")

    def set_prog_file(self, path: str) -> None:
        """Set the file of the program."""
        self.prog_file = path

    def set_params_file(self, path: str) -> None:
        """Set the file of the parameters."""
        self.param_file = path

    def enable_use_gpu(self, memory_pool_init_size_mb: int = 100, device_id: int = 0) -> None:
        """Compute on a GPU.

        Args:
            memory_pool_init_size_mb: accepted without effect.
            device_id: the number of the GPU.
        """
        self.use_gpu, self.device = True, device_id

    def disable_gpu(self) -> None:
        """Compute on the CPU."""
        self.use_gpu = False

    def switch_specify_input_names(self, x: bool = True) -> None:
        """Say whether the names of tensors say which feeds they are."""
        self.specify_input_name = x

    disable_glog_info = enable_memory_optim = enable_mkldnn = enable_profile = enable_tensorrt_engine = _accepted
    set_cpu_math_library_num_threads = set_mkldnn_cache_capacity = set_optim_cache_dir = _accepted
    switch_ir_debug = switch_ir_optim = switch_use_feed_fetch_ops = _accepted


class ZeroCopyTensor:
    """A feed or fetch of a predictor, by its name; `AnalysisPredictor.get_input_tensor` gives it."""

    def __init__(self, values: dict[str, LoDTensor], name: str) -> None:
        self._values, self._name = values, name

    def name(self) -> str:
        """The name of the feed or fetch."""
        return self._name

    def reshape(self, shape: Sequence[int]) -> None:
        """Does nothing: the array of `copy_from_cpu` has its shape."""

    def copy_from_cpu(self, data: Any) -> None:
        """Set the value that is fed."""
        self._tensor().set(np.asarray(data))

    def copy_to_cpu(self) -> np.ndarray[Any, Any]:
        """The value, an array of numpy."""
        return np.array(self._tensor())

    def shape(self) -> list[int]:
        """The sizes."""
        return list(self._tensor().shape())

    def set_lod(self, lod: Sequence[Sequence[int]]) -> None:
        """Set the sequences, as offsets."""
        self._tensor().set_lod([list(level) for level in lod])

    def lod(self) -> list[list[int]]:
        """The sequences, as offsets."""
        return self._tensor().lod()

    def _tensor(self) -> LoDTensor:
        return self._values.setdefault(self._name, LoDTensor())


class AnalysisPredictor:
    """A model that predicts; `create_paddle_predictor` makes it.

    >>> exe = fluid.Executor()
    >>> x = fluid.data("x", [None, 2])
    >>> y = layers.fc(x, 1, param_attr=fluid.initializer.Constant(0.5))
    >>> _ = exe.run(fluid.default_startup_program())
    >>> _ = fluid.io.save_inference_model("model", ["x"], [y], exe)
    >>> predictor = fluid.core.create_paddle_predictor(fluid.core.AnalysisConfig("model"))
    >>> predictor.run([fluid.core.PaddleTensor(np.ones([1, 2], "float32"))])[0].data.float_data()
    [1.0]
    """

    def __init__(self, config: NativeConfig) -> None:
        self._config = config
        self._model = config.read()
        self._executor = Executor(config.place())
        self._feeds: dict[str, LoDTensor] = {}
        self._fetches: dict[str, LoDTensor] = {}

    def run(self, inputs: Sequence[PaddleTensor]) -> list[PaddleTensor]:
        """Predict, and return what the model fetches.

        Args:
            inputs: a tensor for each feed, in the order of `get_input_names`, or by names (`specify_input_name`).
        """
        names = self.get_input_names()
        if len(inputs) != len(names):
            raise ProgramError(f"the model takes {len(names)} inputs, {', '.join(names)}, not {len(inputs)}")
        if self._config.specify_input_name:
            names = [tensor.name for tensor in inputs]
        feeds = {}
        for name, tensor in zip(names, inputs, strict=True):
            feeds[name] = LoDTensor(tensor.as_ndarray())
            feeds[name].set_lod(tensor.lod)
        results = zip(self.get_output_names(), self._predict(feeds), strict=True)
        return [PaddleTensor(np.asarray(value), name, value.lod()) for name, value in results]

    def _predict(self, feeds: dict[str, LoDTensor]) -> list[LoDTensor]:
        model = self._model
        return self._executor.run(model.program, feeds, model.fetches, scope=model.scope, return_numpy=False)

    def zero_copy_run(self) -> None:
        """Predict from the feeds of `get_input_tensor`; `get_output_tensor` has the results."""
        self._fetches.update(zip(self.get_output_names(), self._predict(self._feeds), strict=True))

    def get_input_names(self) -> list[str]:
        """The names of the feeds."""
        return list(self._model.feeds)

    def get_output_names(self) -> list[str]:
        """The names of the fetches."""
        return [variable.name for variable in self._model.fetches]

    def get_input_tensor(self, name: str) -> ZeroCopyTensor:
        """A feed, whose value is to be set."""
        return self._by_name(self._feeds, name, self.get_input_names())

    def get_output_tensor(self, name: str) -> ZeroCopyTensor:
        """A fetch, which `zero_copy_run` computes."""
        return self._by_name(self._fetches, name, self.get_output_names())

    def _by_name(self, values: dict[str, LoDTensor], name: str, names: list[str]) -> ZeroCopyTensor:
        if name not in names:
            raise NameNotFoundError(f"the model has no {name!r} among {', '.join(names)}{did_you_mean(name, names)}")
        return ZeroCopyTensor(values, name)

    def clone(self) -> AnalysisPredictor:
        """A predictor of the same model, for another thread."""
        return AnalysisPredictor(self._config)


def create_paddle_predictor(config: NativeConfig) -> AnalysisPredictor:
    """A predictor of a model.

    Args:
        config: a `NativeConfig` or an `AnalysisConfig`, which names the model.

    Raises:
        ProgramError: it names no model.
        FormatError: the files are no model.

    >>> fluid.core.create_paddle_predictor(fluid.core.AnalysisConfig("no_such_model"))
    Traceback (most recent call last):
        ...
    fluid.errors.FormatError: no_such_model: there is no such model: No such file or directory
    """
    return AnalysisPredictor(config)
