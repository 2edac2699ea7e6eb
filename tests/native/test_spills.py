"""Inner loops of products keep their sums in registers, whatever is computed of the results afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from checks import Checks, fresh_programs
from harness import CROSS, set_target

import fluid
from fluid import layers
from fluid.executor.native import kernel_calls
from fluid.executor.native.regions import NativeRegion
from fluid.executor.native.target import Target

llvm = pytest.importorskip("llvmlite.binding")

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "none": lambda x: x,
    "relu": layers.relu,
    "tanh": layers.tanh,
    "sigmoid": layers.sigmoid,
    "swish": layers.swish,
    "gelu": layers.gelu,
    "exp": layers.exp,
    "hard_swish": layers.hard_swish,
}


def trained(activation: Callable[[Any], Any], optimizer: Any) -> Any:
    hidden = activation(layers.fc(fluid.data("x", [64, 256]), 256))
    loss = layers.mean(activation(layers.fc(hidden, 96)))
    optimizer.minimize(loss)
    return loss


def regions(build: Callable[[], Any]) -> list[NativeRegion]:
    with fresh_programs() as (main, startup):
        loss = build()
        executor = fluid.Executor()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FLUID_NATIVE", "0")
            executor.run(startup)
        feed = {"x": [[0.0] * 256] * 64}
        return [step for step in executor.plan(main, feed, [loss]).instructions if isinstance(step, NativeRegion)]


@cache
def assembly(text: str, target: Target) -> str:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=1, reloc="pic", codemodel="small", jit=True
    )
    with llvm.parse_assembly(f'target triple = "{target.triple}"\n{text}\n{target.attributes}', llvm.create_context()) as module:
        return str(machine.emit_assembly(module))


def inner_loops(text: str) -> Iterator[list[str]]:
    """The instructions of each block that jumps to its own start."""
    for block in re.split(r"\n(?=\.LBB\d+_\d+:)", text):
        label, _, body = block.partition(":")
        lines = [line.strip() for line in body.splitlines()]
        ends = [place for place, line in enumerate(lines) if re.fullmatch(rf"j\w+\s+{re.escape(label)}", line)]
        if ends:
            yield lines[: ends[-1]]


def spills(lines: list[str]) -> list[str]:
    """The vectors that are written to the stack."""
    return [line for line in lines if re.search(r"%[xyz]mm\d+, -?\w*\(%r[sb]p\)$", line)]


@pytest.mark.parametrize("name", ["AVX2", "AVX-512"])
def test_inner_loops_of_products_do_not_spill(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = CROSS[name]
    set_target(monkeypatch, target)
    products = 0
    with Checks() as check:
        for activation in ACTIVATIONS.values():
            for optimizer in (fluid.optimizer.SGD(0.1), fluid.optimizer.Adam(0.1), fluid.optimizer.RMSProp(0.1)):
                for region in regions(lambda activation=activation, optimizer=optimizer: trained(activation, optimizer)):  # type: ignore[misc]
                    for phase in kernel_calls._phases(region)[0]:
                        loops = inner_loops(assembly(kernel_calls._kernel(region, phase, "kernel").text, target))
                        for lines in loops:
                            multiplications = sum(line.startswith("vfmadd") for line in lines)
                            if multiplications >= max(8, len(lines) / 4):  # no loop over the results
                                products += 1
                                with check(region.describe()):
                                    stores = spills(lines)
                                    assert not stores, (
                                        f"{len(stores)} of {len(lines)}, beside {multiplications} products: {stores[:3]}"
                                    )
    assert products > 40
