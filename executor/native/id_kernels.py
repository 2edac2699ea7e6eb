"""Writes the kernels that test ids and small matrices: see `native_checks`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from fluid.values.spec import Spec

from .emitter import BOOL, BYTE, INT64, Function, Value, constant
from .emitter import Operand as Index
from .id_ranges import IdRange, LabelTest, MatrixTest, ValueTest
from .images import parts
from .instructions import WrittenKernel
from .kernel import Share, written_condition, written_kernel
from .lowering import ELEMENTS
from .small_matrices import Matrices, is_any_refused
from .target import Target

__all__ = ["is_any_label_refused", "is_outside", "written_condition", "written_tests"]


def is_outside(f: Function, number: Value, id_range: IdRange) -> Value:
    """Whether a number, or each lane of a vector, is out of a range."""
    if number.type.is_float:  # NaN is outside, too
        outside = f.bit_or(f.compare("ult", number, 0.0), f.compare("ugt", number, float(id_range.extent)))
    else:  # as unsigned, a negative id is too great; the ignored one may be beyond 32 bits
        number = f.convert(number, INT64)
        outside = f.compare("sge" if id_range.takes_negatives else "uge", number, id_range.extent)
    if id_range.ignored is not None:
        outside = f.bit_and(outside, f.compare("ne", number, id_range.ignored))
    return outside


def written_tests(tests: Sequence[ValueTest], target: Target, name: str) -> WrittenKernel:
    """Write a kernel whose first operand gets the number of the first check that fails, or 0."""

    def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
        failed = f.int64(0)
        for test in reversed(tests):
            (pointer, *lengths), (spec, *specs), wanted = [pointers[at] for at in test.operands], test.specs, test.test
            if isinstance(wanted, MatrixTest):
                is_wrong = is_any_refused(f, matrices_of(wanted, spec, pointer), wanted.kind, target)
            elif isinstance(wanted, LabelTest):
                is_wrong = is_any_label_refused(f, wanted, (spec, *specs), pointer, *lengths)
            else:
                is_wrong = _is_any_outside(f, wanted, spec, pointer, target)
            failed = f.select(is_wrong, f.int64(test.check), failed)
        f.loop(*share.of(f, 1), 1, [], lambda _: f.store_number(f.convert(failed, BYTE), f.at(pointers[0], 0, BYTE)))

    return written_kernel(name, 1 + max((at for test in tests for at in test.operands), default=0), body, target)


def matrices_of(test: MatrixTest, spec: Spec, pointer: Value) -> Matrices:
    """The matrices that are tested; transposed if their lower triangle counts."""
    *batch, rows, _ = spec.shape
    steps = (rows, 1) if test.is_upper else (1, rows)
    return Matrices(pointer, (rows * rows, *steps), (prod(batch), rows, rows), ELEMENTS[spec.dtype])


def _is_any_outside(f: Function, one: IdRange, spec: Spec, ids: Value, target: Target) -> Value:
    """Whether any of some ids is out of its range."""
    element = ELEMENTS[spec.dtype]
    count = len(range(one.first, spec.size, one.step))
    lanes = target.lanes(INT64.bytes) if one.step == 1 else 1

    def outside(i: Index, wrong: Value, width: int) -> Value:
        place = f.at(ids, f.add(f.mul(f.int64(i), one.step), one.first), element)
        return f.bit_or(wrong, is_outside(f, f.load(place, element.of(width)), one))

    main = count // lanes * lanes
    none = constant(0, BOOL.of(lanes))
    (wrong,) = f.loop(0, main, lanes, [none], lambda i, wrong: [outside(i, wrong, lanes)])
    result = f.any(wrong)
    for start, width in parts(count - main, lanes):
        result = f.bit_or(result, f.any(outside(main + start, constant(0, BOOL.of(width)), width)))
    return result


def is_any_label_refused(f: Function, test: LabelTest, specs: Sequence[Spec], labels: Value, lengths: Value) -> Value:
    """Whether a label within the lengths is the blank, or no class; see `LabelTest`."""
    (batch, most), (element, of_lengths) = specs[0].shape, (ELEMENTS[spec.dtype] for spec in specs)

    def row(number: Value, wrong: Value) -> list[Value]:
        length = f.convert(f.load(f.at(lengths, number, of_lengths), of_lengths), INT64)

        def label(place: Value, wrong: Value) -> list[Value]:
            class_ = f.convert(f.load(f.at(labels, f.add(f.mul(number, most), place), element), element), INT64)
            refused = f.bit_or(f.compare("uge", class_, test.classes), f.compare("eq", class_, test.blank))
            return [f.bit_or(wrong, refused)]

        return f.loop(0, f.min(f.max(length, 0), most), 1, [wrong], label)

    (wrong,) = f.loop(0, batch, 1, [constant(0, BOOL)], row)
    return wrong
