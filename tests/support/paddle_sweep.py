"""Every sample of every op, forward and with its gradients, written for a version of Paddle and run there.

`cases` makes the programs, once for all versions; `write` writes them, `ANSWERS` is what Paddle's Python runs, and `Answers` says
which agree.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from oracles import Paddle
from samples import OPS, Sample, cast

import fluid
from fluid.errors import FluidError, ProgramError
from fluid.executor import Scope, scope_guard
from fluid.ir.program import Operator
from fluid.opdef.registry import Rule, all_ops, updated_input
from fluid.values.lod_array import to_lengths
from fluid.values.types import VarType

__all__ = ["Case", "answers_of", "cases", "cases_of", "write"]


@dataclass(frozen=True)
class Case:
    """A program and its expected results.

    Attributes:
        key: ``relu-0`` for the first sample of ``relu``, ``relu-0-grad`` for the gradient of its first output, ``relu-0-grad2``
            for the gradient of the second, and so on.
        feed: arrays, or (array, lengths of sequences), by name.
        values: of the fetches.
        random: whether the values are drawn, so that only their shapes and types count.
    """

    key: str
    program: fluid.Program
    feed: Mapping[str, Any]
    fetches: list[str]
    values: list[Any]
    random: bool


@cache
def cases() -> list[Case]:
    """Every sample whose op runs here as a program by itself."""
    return [
        case for op_type in sorted(OPS) for index, sample in enumerate(OPS[op_type]) for case in cases_of(op_type, index, sample)
    ]


def cases_of(op_type: str, index: int, sample: Sample) -> Iterator[Case]:
    """The programs of a sample: forward, and the gradient of each output."""
    forward = _Builder(op_type, sample)
    if not forward.builds():
        return
    names = [var.name for var in forward.outputs if var.type is VarType.LOD_TENSOR]
    values = forward.values_of(names)
    if values is None:
        return
    key = f"{op_type}-{index}"
    if names:
        yield forward.case(key, names, values)
    floats = [name for name, value in zip(names, values, strict=True) if np.asarray(value).dtype.kind == "f"]
    for number, name in enumerate(floats if isinstance(all_ops()[op_type].rule, Rule) else (), 1):
        backward = _Builder(op_type, sample)
        assert backward.builds()
        wanted = backward.differentiate(name, values[names.index(name)])
        gradients = backward.values_of(wanted) if wanted else None
        if gradients is not None:
            yield backward.case(f"{key}-grad{number if number > 1 else ''}", wanted, gradients)


class _Builder:
    """The program of one sample."""

    def __init__(self, op_type: str, sample: Sample) -> None:
        self.program, self.definition, self.sample = fluid.Program(), all_ops()[op_type], sample
        self.feed: dict[str, Any] = {}
        self.block = self.program.global_block()

    def builds(self) -> bool:
        """Append the op; False for ops that take what no sample says."""
        given = {slot: value for slot, value in self.sample.inputs.items() if value is not None}
        lods = self.sample.lods
        sources = {updated_input(self.definition, slot) for slot in self.definition.outputs}
        inputs = {
            slot: [
                self._data(f"{slot}_{i}", *pair)
                for i, pair in enumerate(zip(value, lods.get(slot, [()] * len(value)), strict=True))
            ]
            if isinstance(value, list)
            else self._data(slot, value, lods.get(slot, ()), slot not in sources)
            for slot, value in cast(given, self.sample.dtypes[0]).items()
        }
        self.inputs = _flat(inputs.values())
        try:
            with fluid.program_guard(self.program, fluid.Program()), fluid.unique_name.guard():
                outputs = self.block.namespace.apply(self.definition, inputs, self.sample.attrs)
        except FluidError:
            return False
        public = {
            slot: value for slot, value in outputs.items() if slot != "XShape" and not self.definition.outputs[slot].intermediate
        }
        updates = self._update_in_place()
        names = [updates.get(var.name, var.name) for var in _flat(public.values())]
        self.outputs = [self.block.var(name) for name in names if name]
        return True

    def _data(self, name: str, value: Any, lod: Any = (), is_copied: bool = True) -> fluid.Variable:
        """A copy of a fed variable, because Paddle lets ops overwrite variables that no other op reads."""
        fed = f"{name}@FED" if is_copied else name
        self.feed[fed] = (value, to_lengths(lod)) if lod else value
        how = {"shape": value.shape, "dtype": value.dtype, "lod_level": len(lod)}
        source = var = self.block.create_var(name=fed, **how, is_data=True, need_check_feed=True)
        if is_copied:
            var = self.block.create_var(name=name, **how)
            self.block.append_op("assign", {"X": source}, {"Out": var}, {})
        var.stop_gradient = value.dtype.kind != "f"
        return var

    def _update_in_place(self) -> dict[str, str]:
        """Let the op write its updates over its inputs, as layers do; old name -> new name, empty for what has no input."""
        op, updates = self.block.ops[-1], {}
        for slot in list(op.outputs):
            source = updated_input(self.definition, slot) or f"in_{slot.removeprefix('out_')}"
            if source in self.definition.inputs:
                (old,), new = op.outputs[slot], op.inputs.get(source, [])
                updates[old] = "".join(new)
                op.outputs[slot] = list(new)
        return updates

    def differentiate(self, target: str, value: Any) -> list[str]:
        """Append the gradients of an output with this value, for a gradient that is fed; their names."""
        wanted = [var for var in self.inputs if not var.stop_gradient]
        draw = np.random.default_rng(zlib.crc32(f"{self.definition.type} {target}".encode()))
        array = np.asarray(value)
        fed = self._data("cotangent", draw.uniform(0.5, 1.5, array.shape).astype(array.dtype), value.lod())
        try:
            with fluid.program_guard(self.program, fluid.Program()), fluid.unique_name.guard("b"):
                found = fluid.gradients([self.block.var(target)], wanted, [fed]) if wanted else []
        except FluidError:
            return []
        return [var.name for var in found if var is not None]

    def values_of(self, names: list[str]) -> list[Any] | None:
        """The program's results here, as `LoDTensor`; None if one of them has no value."""
        with scope_guard(Scope()):
            try:
                return fluid.Executor().run(self.program, self.feed, names, return_numpy=False)
            except FluidError:
                return None

    def case(self, key: str, names: list[str], values: list[Any]) -> Case:
        """The program, which fetches copies of these variables: Paddle lets ops overwrite what nothing else reads."""
        for name in names:
            copy = self.block.create_var(name=f"{name}@FETCHED", dtype=self.block.var(name).dtype)
            self.block.append_op("assign", {"X": name}, {"Out": copy}, {})
        return Case(key, self.program, self.feed, [f"{name}@FETCHED" for name in names], values, self.sample.random)


def _flat(values: Iterable[Any]) -> list[Any]:
    return [item for value in values for item in (value if isinstance(value, list) else [value])]


# ----------------------------------------------------------------------------------------------------------- for Paddle
def write(folder: Path, target: str, only: Iterable[Case]) -> dict[str, str]:
    """Write cases into a folder for a version of Paddle; returns key -> reason for refused ones."""
    refused = {}
    with patch("os.fsync"):  # of thousands of files, none has to outlive the test
        for case in only:
            try:
                _write(folder, case, target)
            except ProgramError as error:
                refused[case.key] = str(error)
                continue
            arrays = {f"in/{name}": value[0] if isinstance(value, tuple) else value for name, value in case.feed.items()}
            arrays |= {f"out/{i}": np.asarray(value) for i, value in enumerate(case.values)}
            lengths = {name: value[1] for name, value in case.feed.items() if isinstance(value, tuple)}
            facts = {"fetches": case.fetches, "random": case.random, "lengths": lengths}
            np.savez(folder / f"{case.key}.npz", facts=np.array(json.dumps(facts)), **arrays)
    return refused


def _write(folder: Path, case: Case, target: str) -> None:
    root = case.program.global_block()
    with scope_guard(Scope()):
        if target != "paddle-3":
            fluid.save_model(folder / f"{case.key}.pdmodel", case.program, target=target)
            return
        root.create_var(name="fetch", type=VarType.FETCH_LIST, persistable=True)  # Paddle 3 fetches by these ops
        for i, name in enumerate(case.fetches):
            root.ops.append(Operator(root, "fetch", {"X": [name]}, {"Out": ["fetch"]}, {"col": i}))
        try:
            fluid.save_model(folder / f"{case.key}.json", case.program)
        finally:
            del root.ops[-len(case.fetches) :]
            del root.vars["fetch"]


ANSWERS = r"""
import json, os, signal

def load(key, values, facts):
    feed = {name[3:]: values[name] for name in values.files if name.startswith("in/")}
    for name, lengths in facts["lengths"].items():
        feed[name] = paddle.base.create_lod_tensor(feed[name], lengths, paddle.CPUPlace())
    if os.path.exists(key + ".json"):
        program, feeds, fetches = static.load_inference_model(key, executor)
        return program, {name: feed[name] for name in feeds}, fetches
    program = static.Program.parse_from_string(open(key + ".pdmodel", "rb").read())
    return program, feed, facts["fetches"]

def answer(key):
    values = np.load(key + ".npz")
    facts = json.loads(str(values["facts"]))
    with static.scope_guard(static.Scope()):
        outputs = executor.run(*load(key, values, facts), return_numpy=False)
        outputs = [np.array(output) for output in outputs]
    for index, output in enumerate(outputs):
        want = values[f"out/{index}"]
        if output.size == want.size == 0:  # Paddle leaves them as they were
            continue
        if output.dtype != want.dtype or output.shape != want.shape and output.size * want.size != 1:
            return f"differs: {output.dtype}{output.shape}, not {want.dtype}{want.shape}"
        if not facts["random"] and not np.allclose(output, want.reshape(output.shape), rtol=1e-3, atol=1e-4, equal_nan=True):
            return f"differs by {np.abs(output.astype(float) - want.astype(float)).max()}"
    return "same"

def answer_each(keys, pipe):
    for key in keys:
        signal.alarm(30)  # ends the process where Paddle waits for itself
        try:
            text = answer(key)
        except BaseException as error:
            text = "fails: " + str(error)[-400:].replace("\n", " ")
        os.write(pipe, f"{key}\t{text}\n".encode())
    os._exit(0)

def ask(keys):
    # In a process that is started again behind what Paddle ends it over.
    while keys:
        reader, writer = os.pipe()
        if not os.fork():
            answer_each(keys, writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            said = [line.split("\t", 1) for line in pipe.read().decode().splitlines()]
        os.wait()
        found.update({key: np.array(text) for key, text in said})
        keys = keys[len(said):]
        if keys:
            found[keys[0]] = np.array("fails: the process ended")
            keys = keys[1:]

if given["keys"].size:
    ask(given["keys"].tolist())
for key in given["alone"].tolist():  # which may spoil the memory that others read
    ask([key])
"""


def answers_of(paddle: Paddle, keys: Iterable[str], alone: Iterable[str] = ()) -> dict[str, str]:
    """Paddle's verdict on the cases in a folder: ``same``, or how a case ``differs`` or ``fails``."""
    alone = set(alone)
    parts = {"keys": [key for key in keys if key not in alone], "alone": [key for key in keys if key in alone]}
    found = paddle(ANSWERS, **{name: np.array(part, str) for name, part in parts.items()})
    return {key: str(answer) for key, answer in found.items()}
