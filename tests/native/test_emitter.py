"""The emitter rejects instructions that mix numbers and vectors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import each
from harness import run

from fluid.executor.native import compiler
from fluid.executor.native.emitter import BOOL, FLOAT, INT64, POINTER, Function, Module, Type, constant

NUMBER, LANE, LANES = (constant(1.0, type_) for type_ in (FLOAT, FLOAT.of(1), FLOAT.of(8)))
POINTER_TO_FLOATS = constant(0, POINTER)
MIXED: dict[str, Callable[[Function], Any]] = {
    "a sum over the lanes of a number": lambda f: f.total(NUMBER),
    "a sum of a number and a vector": lambda f: f.add(NUMBER, LANES),
    "a sum of a number and a vector of one lane": lambda f: f.add(LANE, NUMBER),
    "a product of vectors of different lanes": lambda f: f.mul(LANE, LANES),
    "a multiply-add of a number to vectors": lambda f: f.fma(LANES, LANES, NUMBER),
    "a comparison": lambda f: f.compare("olt", NUMBER, LANE),
    "a choice": lambda f: f.select(constant(1, BOOL.of(8)), NUMBER, NUMBER),
    "a shuffle of a number": lambda f: f.shuffle(NUMBER, NUMBER, [0]),
    "the lane of a number": lambda f: f.lane(NUMBER, 0),
    "a vector for a number in a lane": lambda f: f.with_lane(LANES, 0, LANE),
    "a vector in all lanes": lambda f: f.splat(LANE, 8),
    "a store of a number as a vector": lambda f: f.store(NUMBER, POINTER_TO_FLOATS),
    "a store of lanes of a number": lambda f: f.store_first(NUMBER, POINTER_TO_FLOATS, 1),
    "a store of a vector as a number": lambda f: f.store_number(LANE, POINTER_TO_FLOATS),
}


@each("mixed", MIXED)
def test_numbers_and_vectors_do_not_meet(mixed: str) -> None:
    f = Function(Module(compiler.host()), "f", [])
    with pytest.raises(TypeError, match=r"a (number|vector of [18]) "):
        MIXED[mixed](f)


@each("lanes", [1, 2, 8])
def test_a_number_is_spread_and_summed(lanes: int) -> None:
    def body(f: Any, pointers: Any, share: Any) -> None:
        x, out = pointers
        spread = f.splat(f.load(x, FLOAT), lanes)
        f.store_number(f.total(spread), out)
        f.store_number(f.lane(spread, lanes - 1), f.at(out, 1, FLOAT))
        f.store_number(f.convert(f.any(f.compare("ogt", spread, 2.0)), FLOAT), f.at(out, 2, FLOAT))
        f.store_number(f.convert(f.convert(share.thread, INT64), FLOAT), f.at(out, 3, FLOAT))

    _, out = run(body, [np.array([3], np.float32), np.zeros(4, np.float32)], threads=[1])
    assert out.tolist() == [3 * lanes, 3, 1, 0]


@each("element", ["half", "bfloat", "float"])
def test_numbers_that_a_type_cannot_hold_are_infinite(element: str) -> None:
    type_ = Type(element)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for sign in (1, -1):
            assert constant(sign * 1e100, type_).text == constant(sign * math.inf, type_).text
