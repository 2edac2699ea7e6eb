"""Facets on numpy: values, inference, derivatives up to order three, kernels, programs and plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numeric import assert_gradients, dot, flat
from samples import cast

from fluid.autodiff.explain import zero_gradients
from fluid.backward import gradients
from fluid.executor.binding.arrays import bind_op, map_values, specs_of
from fluid.executor.binding.compiled import apply_op
from fluid.executor.executor import Executor
from fluid.executor.kernels.table import KERNELS
from fluid.executor.runtime.random import RandomStreams
from fluid.executor.runtime.scope import Scope
from fluid.executor.runtime.specs import spec_of
from fluid.formats.text import parse_program_text, program_to_string
from fluid.ir.program import Program, Variable
from fluid.opdef import registry
from fluid.opdef.inference import infer_specs
from fluid.opdef.registry import OpDef, grad_slot, updated_input
from fluid.values.lod_array import array_of
from fluid.values.spec import Spec

from .case import TOLERANCES, Case, Meaning, OneOp, call_reference, is_float
from .facet import every_dtype, facet, float32, float64, has_gradient_kernel, is_differentiated, widest_dtype

__all__ = ["THIRD_ORDER", "assert_inferred"]


@facet(every_dtype)
def forward(case: Case) -> None:
    """Outputs equal the plain numpy statement, in shape and dtype too; inputs stay as they are."""
    before = cast(case.inputs, case.dtype)
    rtol, atol = (limit * case.sample.tolerance for limit in TOLERANCES[case.dtype])
    for value in flat(next(iter(case.outputs.values()))):
        case.note(dtypes=str(value.dtype))
    if case.sample.check is not None:
        case.sample.check(case.inputs, case.outputs)
        return
    expected = call_reference(case.sample, before, case.definition)
    for slot, definition in case.definition.outputs.items():
        assert slot in expected or definition.intermediate or definition.optional, f"the reference does not give {slot}"
    for layout in ("C", "F"):
        case.inputs = {
            slot: [np.array(i, order=layout) for i in v] if isinstance(v, list) else np.array(v, order=layout)
            for slot, v in case.inputs.items()
        }  # type: ignore[call-overload]
        found = case.forward()
        for slot, values in expected.items():
            assert len(flat(found[slot])) == len(flat(values))
            for out, value in zip(flat(found[slot]), flat(values), strict=True):
                value = np.asarray(value)
                assert out.shape == value.shape, f"{slot} is {out.shape}, should be {value.shape}"
                assert out.dtype.kind == value.dtype.kind, f"{slot} is {out.dtype}, should be {value.dtype}"
                assert out.dtype.kind not in "fc" or out.dtype == value.dtype, f"{slot} is {out.dtype}, should be {value.dtype}"
                np.testing.assert_allclose(out, value, rtol, atol, err_msg=slot)
        for slot, value in before.items():
            for old, new in zip(flat(value), flat(case.inputs[slot]), strict=True):
                assert np.array_equal(old, new, equal_nan=is_float(old)), f"the kernel wrote to its input {slot}"


def assert_draws(runs: Callable[[int], dict[str, Any]]) -> None:
    """`runs` gives the same bits for the same seed, others for another (if anything is left to chance)."""
    first, again, other = runs(3), runs(3), runs(4)
    for slot, value in first.items():
        assert np.array_equal(value, again[slot])
    is_dropped = "Mask" in first and first["Mask"].dtype == np.uint8
    drawn = "Mask" if is_dropped else "Out" if "Out" in first else next(iter(first))
    if len(np.unique(first[drawn])) > 1:
        assert not np.array_equal(first[drawn], other[drawn])


@facet(float64, lambda case: case.sample.random)
def same_seed_same_bits(case: Case) -> None:
    """The op's seed decides the drawn numbers; without it, the program's seed does."""
    if "seed" in case.definition.attrs:
        assert_draws(lambda seed: apply_op(case.type, case.inputs, {**case.sample.attrs, "seed": seed}))
    one = OneOp(case)
    one.program.global_block().ops[0].attrs.update(seed=0)

    def run(seed: int) -> dict[str, Any]:
        one.program.random_seed = seed
        fetch = {slot: var for slot, var in one.outputs.items() if isinstance(var, Variable)}
        return dict(zip(fetch, Executor().run(one.program, one.fed, list(fetch.values()), scope=Scope()), strict=True))

    assert_draws(run)


# --------------------------------------------------------------------------------------------------------- inference
def unknown_extents(specs: dict[str, Any], known: Sequence[str]) -> list[dict[str, Any]]:
    """Variants of `specs`: each extent replaced by -1 in turn, then all; slots in `known` stay."""

    def hide(spec: Spec, axes: set[int]) -> Spec:
        shape = tuple(-1 if i in axes else n for i, n in enumerate(spec.shape))
        return spec.with_shape(shape).with_lod((None,) * len(spec.lod) if 0 in axes else spec.lod)

    places = [
        (slot, position, axis)
        for slot, value in specs.items()
        if slot not in known
        for position, spec in enumerate(flat(value))
        for axis in range(len(spec.shape))
    ]
    variants = [{place} for place in places] + ([set(places)] if len(places) > 1 else [])
    found = []
    for hidden in variants:
        variant: dict[str, Any] = {}
        for slot, value in specs.items():
            items = [hide(spec, {a for s, p, a in hidden if s == slot and p == i}) for i, spec in enumerate(flat(value))]
            variant[slot] = items if isinstance(value, list) else items[0]
        found.append(variant)
    return found


def assert_inferred(inferred: dict[str, Any], outputs: dict[str, Any], exact: bool) -> None:
    for slot, arrays in outputs.items():
        if arrays is None:
            continue
        assert inferred.get(slot) is not None, f"nothing is inferred of {slot}"
        assert len(flat(inferred[slot])) == len(flat(arrays))
        for spec, array in zip(flat(inferred[slot]), flat(arrays), strict=True):
            assert spec.dtype == spec_of(array).dtype
            assert len(spec.shape) == array.ndim, f"{slot} is {array.shape}, inferred {spec.shape}"
            for extent, actual in zip(spec.shape, array.shape, strict=True):
                assert extent == actual or (extent == -1 and not exact), f"{slot} is {array.shape}, inferred {spec.shape}"


@facet(widest_dtype)
def inference(case: Case) -> None:
    """Inferred specs equal computed ones; unknown extents may only make extents unknown."""
    specs = specs_of(case.with_lods(case.inputs))
    inferred = infer_specs(case.definition, specs, case.attrs)
    assert_inferred(inferred, case.outputs, exact=not case.sample.shapes_by_value)
    for slot, shape in case.sample.declared.items():
        declared = {slot: inferred[slot].with_shape(shape)}
        assert infer_specs(case.definition, specs, case.attrs, declared)[slot].shape == shape
    for variant in unknown_extents(specs, case.sample.known):
        assert_inferred(infer_specs(case.definition, variant, case.attrs), case.outputs, exact=False)
        case.note(unknown=True)


# ------------------------------------------------------------------------------------------------ first derivatives
@facet(float64, is_differentiated)
def gradient_rule(case: Case) -> None:
    """The rule, run over arrays, against central differences of the op; the same whichever gradients are wanted."""
    cotangents = case.cotangents()
    found = case.by_rule(cotangents, set(case.wrt))

    def objective(inputs: dict[str, Any]) -> float:
        outputs = case.forward(inputs)
        return sum(dot(outputs[slot], cotangent) for slot, cotangent in cotangents.items())

    assert_gradients(
        objective,
        case.inputs,
        {slot: found[slot] for slot in case.wrt if found[slot] is not None},
        case.rng,
        case.sample.tolerance,
        directions=1,
        within=case.sample.within,
    )
    for slot in case.wrt:
        alone = case.by_rule(cotangents, {slot})[slot]
        for one, both in zip(flat(alone), flat(found[slot]), strict=True):
            assert np.array_equal(one, both)
    specs = (specs_of(case.with_lods(values)) for values in (case.inputs, case.outputs))
    for slot in zero_gradients(case.definition, *specs, case.attrs).intersection(case.wrt):
        assert not any(map(np.any, flat(found[slot]))), f"explain_gradient takes the gradient of {slot} for zeros"
    case.note(orders=1)


@facet(every_dtype, has_gradient_kernel)
def gradient_kernel(case: Case) -> None:
    """The hand-written kernel of a gradient op against the rule that it replaces, whichever gradients are wanted."""
    rtol, atol = (10 * limit * case.sample.tolerance for limit in TOLERANCES[case.dtype])
    cotangents = case.cotangents()
    expected = case.by_rule(cotangents, set(case.wrt))
    for wanted in [set(case.wrt), *({slot} for slot in case.wrt)]:
        slots = {grad_slot(slot) for slot in wanted}
        found = case.grad(case.grad_inputs(cotangents), slots)
        for slot in wanted:
            for one, other in zip(flat(found[grad_slot(slot)]), flat(expected[slot]), strict=True):
                assert one.dtype == other.dtype
                np.testing.assert_allclose(one, other, rtol, atol, err_msg=slot)


@facet(every_dtype, lambda case: case.definition.meaning is not None and not case.sample.shapes_by_value)
def meaning(case: Case) -> None:
    """The formula of an op with a kernel, against the kernel, where shapes tell the shapes of its results."""
    rtol, atol = (10 * limit * case.sample.tolerance for limit in TOLERANCES[case.dtype])
    found = apply_op(case.definition.type, case.with_lods(case.inputs), case.sample.attrs, use_kernel=False)
    for slot, value in map_values(array_of, found).items():
        for one, other in zip(flat(value), flat(case.outputs[slot]), strict=True):
            if one is not None and other is not None:
                assert one.dtype == other.dtype and one.shape == other.shape, slot
                np.testing.assert_allclose(one, other, rtol, atol, err_msg=slot)


def spoiled(array: Any) -> Any:
    """An array of this shape and type with values that are certainly wrong."""
    return np.full_like(array, np.nan) if is_float(array) else ~array


@facet(widest_dtype)
def likes_are_read_for_their_shapes(case: Case) -> None:
    """The planner gives away the memory of inputs that are `Like`, so neither an op nor its gradient op may read their values."""

    def assert_same(definition: OpDef, values: dict[str, Any], run: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        likes = [slot for slot in values if definition.inputs[slot].shape_only and values[slot] is not None]
        if not likes:
            return
        expected, found = run(values), run({**values, **map_values(spoiled, {slot: values[slot] for slot in likes})})
        for slot, value in expected.items():
            for one, other in zip(flat(found[slot]), flat(value), strict=True):
                assert np.array_equal(one, other, equal_nan=is_float(other)), f"{slot} changes with the values of {likes}"

    if not case.sample.random:
        wanted = set(case.outputs)
        assert_same(
            case.definition,
            case.inputs,
            lambda values: map_values(
                array_of, apply_op(case.definition.type, case.with_lods(values), case.sample.attrs, wanted)
            ),
        )
    if case.wrt and not case.definition.inline_grad:
        slots = {grad_slot(slot) for slot in case.wrt}
        gradient = registry.get(case.definition.grad_type)
        assert_same(gradient, case.grad_inputs(case.cotangents()), lambda values: case.grad(values, slots))


# ------------------------------------------------------------------------------------------------------- how it binds
def bindings(case: Case) -> list[tuple[OpDef, dict[str, Any], dict[str, Any]]]:
    """The op, and its gradient op where that has a kernel, with inputs and outputs."""
    found = [(case.definition, case.inputs, case.outputs)]
    if case.wrt and not case.definition.inline_grad and case.definition.grad_type in KERNELS:
        definition = registry.get(case.definition.grad_type)
        inputs = case.grad_inputs(case.cotangents())
        found.append((definition, inputs, case.grad(inputs, {grad_slot(s) for s in case.wrt})))
    return found


def copied(arrays: dict[str, Any], make: Any = np.copy) -> dict[str, Any]:
    return {
        slot: None if value is None else [make(item) for item in value] if isinstance(value, list) else make(value)
        for slot, value in arrays.items()
    }


def steps_of(case: Case, definition: OpDef, inputs: dict[str, Any], outputs: dict[str, Any]) -> list[Any]:
    rng = RandomStreams(np, 0).source("", int(case.attrs.get("seed") or 0))
    context, lods = {"xp": np, "scratch": np.empty, "rng": rng}, case.lods_of({**inputs, **outputs})
    return bind_op(definition, inputs, outputs, case.attrs, context, np.empty, lods=lods)


@facet(widest_dtype, lambda case: not case.sample.shapes_by_value and not case.draws_anew)
def kernel_binds_once(case: Case) -> None:
    """A prepared kernel computes from the values at the time of the call; outputs may hold anything before."""
    for definition, inputs, expected in bindings(case):
        if any(slot in expected and updated_input(definition, slot) for slot in definition.outputs):
            continue  # inputs are outputs: held against the reference
        arrays, outputs = copied(inputs, np.zeros_like), copied(expected, np.zeros_like)
        if definition.type in KERNELS and not KERNELS[definition.type].is_prepared:
            arrays = copied(inputs)
        steps = steps_of(case, definition, arrays, outputs)
        for _ in range(2):
            for slot, value in inputs.items():
                for target, source in zip(flat(arrays[slot]), flat(value), strict=True):
                    np.copyto(target, source)
            for value in outputs.values():
                for target in flat(value):
                    if target is not None:
                        target.fill(77)
            for step in steps:
                step()
            for slot, value in expected.items():
                for one, other in zip(flat(outputs[slot]), flat(value), strict=True):
                    assert one is None or np.array_equal(one, other, equal_nan=is_float(one)), f"{definition.type}: {slot}"


@facet(widest_dtype)
def kernel_in_place(case: Case) -> None:
    """Where a kernel says that an output may share an input's array, sharing it changes no bit."""
    for definition, inputs, expected in bindings(case):
        for slot, source in KERNELS[definition.type].inplace.items() if definition.type in KERNELS else ():
            if slot not in expected or source not in inputs or updated_input(definition, slot):
                continue
            arrays, outputs = copied(inputs), copied(expected)
            shared = arrays[source] if isinstance(expected[slot], list) else flat(arrays[source])[0]
            pairs = list(zip(flat(shared), flat(expected[slot]), strict=True))
            if any(out is None or out.shape != one.shape or out.dtype != one.dtype for one, out in pairs):
                continue
            outputs[slot] = shared
            for step in steps_of(case, definition, arrays, outputs):
                step()
            for name, value in expected.items():
                for one, other in zip(flat(outputs[name]), flat(value), strict=True):
                    assert one is None or np.array_equal(one, other, equal_nan=is_float(one)), (
                        f"{definition.type}: {name} with {slot} in {source}"
                    )


@facet(every_dtype, lambda case: case.definition.decomposition is not None)
def decomposition(case: Case) -> None:
    """The op's decomposition against its kernel; other facets test the gradients."""
    assert case.definition.grad_type in KERNELS, f"the gradient of {case.type} needs a kernel"
    one = Meaning(case)
    assert case.rule is not None and set(one.outputs) == set(case.rule.cotangents)
    rtol, atol = (10 * limit * case.sample.tolerance for limit in TOLERANCES[case.dtype])
    for slot, variables in one.outputs.items():
        found = [array_of(value) for value in one.interpret(one.program, one.feed, flat(variables))]
        for value, kept in zip(found, flat(case.outputs[slot]), strict=True):
            assert value.dtype == kept.dtype
            np.testing.assert_allclose(value, kept, rtol, atol, err_msg=slot)


@facet(float64, is_differentiated)
def second_order(case: Case) -> None:
    """The gradient program against the rule, and, differentiated again, against its own central differences."""
    one = OneOp(case)
    grads, factors = one.first_order()
    cotangents = {slot: cotangent_of(one, slot, value) for slot, value in factors.items()}
    expected = case.by_rule(cotangents, set(case.wrt))
    found = one.interpret(one.program, one.feed, grads)
    for value, by_rule in zip(found, [item for slot in case.wrt for item in flat(expected[slot])], strict=True):
        assert (value is None) == (by_rule is None)
        if value is not None:
            np.testing.assert_allclose(value, by_rule, 1e-12, 1e-12)
    if case.sample.orders < 2:
        return
    before, wrt = one.program.clone(), one.wrt + [var for value in factors.values() for var in flat(value)]
    first = [grad for grad in grads if grad is not None]
    lods = [one.lods.get(var.name, ()) for var, grad in zip(one.wrt, grads, strict=True) if grad is not None]
    weights = one.factors("weight", first, [value for value in found if value is not None], lods)
    second = gradients(first, wrt, weights)

    run = one.interpreter(before, first)

    def objective(feed: dict[str, Any]) -> float:
        return sum(dot(value, feed[weight.name]) for value, weight in zip(run(feed), weights, strict=True))

    values = one.interpret(one.program, one.feed, second)
    found = [np.zeros(one.feed[var.name].shape) if value is None else value for var, value in zip(wrt, values, strict=True)]
    expected = {var.name: value for var, value in zip(wrt, found, strict=True)}
    assert_gradients(objective, one.feed, expected, case.rng, case.sample.tolerance, directions=1, within=case.sample.within)
    case.note(orders=2)


BY_WEIGHTS = {
    *(
        "cudnn_lstm",
        "fused_embedding_fc_lstm",
        "fusion_gru",
        "fusion_lstm",
        "gru",
        "gru_unit",
        "lstm",
        "lstmp",
        "multi_gru",
        "rnn",
    ),
    *("match_matrix_tensor", "scatter_nd_add", "warpctc"),
}
"""Ops whose rules take sizes from weights. A program declares parameters, so a run has the same sizes."""


@facet(float64, lambda case: is_differentiated(case) and case.sample.orders >= 2 and case.type not in BY_WEIGHTS)
def rules_hold_at_any_size(case: Case) -> None:
    """Ops that a rule appends hold no declared size, because a run may have other sizes."""

    def appended(unknown: int | None) -> list[str]:
        one = OneOp(case, unknown)
        grads, factors = one.first_order()
        first = [grad for grad in grads if grad is not None]
        values = case.by_rule({slot: cotangent_of(one, slot, value) for slot, value in factors.items()}, set(case.wrt))
        arrays = [item for slot in case.wrt for item in flat(values[slot]) if item is not None]
        lods = [one.lods.get(var.name, ()) for var, grad in zip(one.wrt, grads, strict=True) if grad is not None]
        wrt = one.wrt + [var for value in factors.values() for var in flat(value)]
        gradients(first, wrt, one.factors("weight", first, arrays, lods))
        return [f"{op.type} {sizeless(op.attrs)}" for block in one.program.blocks for op in block.ops]

    declared = appended(None)
    for unknown in (1, 9):
        assert appended(unknown) == declared, f"with {unknown} unknown extents"


def sizeless(attrs: dict[str, Any]) -> dict[str, Any]:
    """Attributes without blocks and names of variables."""
    return {name: value for name, value in attrs.items() if name not in ("op_role_var", "sub_block", "input_grads")}


DIFFERENTIATED_THRICE = (
    *("tanh", "sigmoid", "exp", "softplus", "gelu", "swish", "elementwise_mul", "elementwise_div", "elementwise_pow", "matmul"),
    *("mul", "reduce_sum", "reduce_mean", "reduce_prod", "softmax", "log_softmax", "cross_entropy", "softmax_with_cross_entropy"),
    *("layer_norm", "batch_norm", "conv2d", "pool2d", "concat", "slice", "lookup_table_v2", "transpose2", "squared_l2_norm"),
    *("group_norm", "bilinear_tensor_product", "cos_sim", "huber_loss", "gru_unit", "lstm_unit", "sequence_pool"),
    "deformable_conv",
)
THIRD_ORDER = {f"{op_type}-0" for op_type in DIFFERENTIATED_THRICE}


@facet(float64, lambda case: case.key in THIRD_ORDER)
def third_order(case: Case) -> None:
    """The gradient of the gradient of the gradient, against central differences of the program before it."""
    one = OneOp(case)
    wrt, found = list(one.wrt), one.first_order()[0]
    for order in (2, 3):
        goals = [grad for grad in found if grad is not None]
        lods = [one.lods.get(var.name, ()) for var, grad in zip(wrt, found, strict=True) if grad is not None]
        weights = one.factors(f"weight_{order}", goals, one.interpret(one.program, one.feed, goals), lods)
        before = one.program.clone()
        found = gradients(goals, wrt, weights)
        if not any(grad is not None for grad in found):
            break  # a linear op: this and what comes after is zero

    run = one.interpreter(before, goals)

    def objective(feed: dict[str, Any]) -> float:
        return sum(dot(value, feed[weight.name]) for value, weight in zip(run(feed), weights, strict=True))

    values = one.interpret(one.program, one.feed, found)
    expected = {var.name: np.zeros(one.feed[var.name].shape) if v is None else v for var, v in zip(wrt, values, strict=True)}
    assert_gradients(objective, one.feed, expected, case.rng, case.sample.tolerance * 5, directions=1)
    case.note(orders=3)


def cotangent_of(one: OneOp, slot: str, factor: Any) -> Any:
    """The arrays that were fed as factors of an output slot, shaped as the op gives it."""
    if isinstance(factor, list):
        return [one.feed[var.name] for var in factor]
    return one.feed[factor.name].reshape(one.case.outputs[slot].shape)


@facet(float32)
def round_trips(case: Case) -> None:
    """A program of the op and of its gradient op is the same after a trip over the wire or through its text."""
    one = OneOp(case)
    if case.wrt:
        one.first_order()
    data, text = one.program.serialize_to_string(), program_to_string(one.program)
    from_wire, from_text = Program.parse_from_string(data), parse_program_text(text)
    assert from_wire.serialize_to_string() == data
    assert program_to_string(from_text) == text
    for program in (one.program, from_text):  # the text keeps no order of declarations
        program.global_block().vars = dict(sorted(program.global_block().vars.items()))
    assert from_text.serialize_to_string() == one.program.serialize_to_string()


@facet(every_dtype)
def plan(case: Case) -> None:
    """A planned run gives the bits of a run without a plan, each time, and does not change the feeds."""
    one = OneOp(case)
    fetch = one.with_gradients()
    one.program.random_seed = 1
    expected = Executor().interpret(one.program, one.fed, fetch, Scope())
    executor, scope, before = Executor(), Scope(), copied(one.feed)
    for _ in range(1 if case.draws_anew else 2):
        found = executor.run(one.program, one.fed, fetch, scope=scope)
        for var, value, reference in zip(fetch, found, expected, strict=True):
            assert value.dtype == reference.dtype and value.shape == reference.shape
            assert np.array_equal(value, reference, equal_nan=is_float(value)), var.name
    for name, value in before.items():
        assert np.array_equal(value, one.feed[name], equal_nan=is_float(value)), f"the run wrote to what was fed as {name}"
