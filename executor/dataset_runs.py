"""Runs of a program on each batch of a dataset, as `Executor.train_from_dataset` makes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fluid.errors import FeedError, FeedTypeError
from fluid.ir.program import Program, Variable

from . import feeding
from .runtime.scope import Scope

if TYPE_CHECKING:
    from .executor import Executor


def run_from_dataset(
    executor: Executor,
    program: Program | None,
    dataset: Any,
    scope: Scope | None,
    fetch_list: Sequence[Variable | str] | None,
    fetch_info: Sequence[str] | None,
    print_period: int,
    use_prune: bool,
) -> None:
    """Run a program on each batch, and print the fetched values every `print_period` batches."""
    batches = _batches_of(dataset)
    names = feeding.fetched_names(feeding.program_of(program), fetch_list)
    words = list(fetch_info or names)
    if len(words) != len(names):
        raise FeedError(f"fetch_info has {len(words)} texts for the {len(names)} variables of fetch_list")
    for step, feed in enumerate(batches, 1):
        values = executor.run(program, feed, fetch_list, scope=scope, use_prune=use_prune)
        if values and step % max(1, print_period) == 0:
            print(f"step {step}: " + ", ".join(f"{word} {value}" for word, value in zip(words, values, strict=True)))


def _batches_of(dataset: Any) -> Iterator[Mapping[str, Any]]:
    if not hasattr(dataset, "batches"):
        raise FeedTypeError(f"the dataset should be one that fluid.DatasetFactory makes, not {type(dataset).__name__}")
    batches: Iterator[Mapping[str, Any]] = dataset.batches()
    return batches
