"""`fluid.io`: saving and loading, datasets, samplers and readers, under the names of Paddle 1.x.

`fluid.saving` saves and loads, `fluid.loading` and `fluid.reader` feed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .loading import transforms
from .loading.collation import collate, collate_padded, collate_sequences
from .loading.datasets import ConcatDataset, Dataset, IterableDataset, MappedDataset, Subset, TensorDataset, random_split
from .loading.files import CSVDataset, ImageFolder, read_image
from .loading.samplers import BatchSampler, DistributedBatchSampler, RandomSampler, SequentialSampler
from .loading.worker_info import WorkerInfo, get_worker_info
from .not_here import names_here, names_not_here
from .reader import *  # noqa: F403
from .reader import __all__ as _READERS
from .saving.inference_models import load_inference_model, save_inference_model
from .saving.program_state import load, load_program_state, save, set_program_state
from .saving.variables import (
    get_parameter_value,
    get_parameter_value_by_name,
    get_program_parameter,
    get_program_persistable_vars,
    is_belong_to_optimizer,
    is_parameter,
    is_persistable,
    load_params,
    load_persistables,
    load_vars,
    save_params,
    save_persistables,
    save_vars,
)
from .transform.pruning import prune

__all__ = [
    "get_parameter_value", "get_parameter_value_by_name", "get_program_parameter", "get_program_persistable_vars",
    "is_belong_to_optimizer", "is_parameter", "is_persistable", "load", "load_inference_model", "load_params",
    "load_persistables", "load_program_state", "load_vars", "prune", "save", "save_inference_model", "save_params",
    "save_persistables", "save_vars", "set_program_state", *_READERS, "BatchSampler", "CSVDataset", "ConcatDataset", "Dataset",
    "DistributedBatchSampler", "ImageFolder", "IterableDataset", "MappedDataset", "RandomSampler", "SequentialSampler", "Subset",
    "TensorDataset", "WorkerInfo", "collate", "collate_padded", "collate_sequences", "get_worker_info", "random_split",
    "read_image", "transforms",
]  # fmt: skip

__dir__ = names_here(__name__)

if not TYPE_CHECKING:
    __getattr__ = names_not_here(__name__)
