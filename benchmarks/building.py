"""Building programs: time per forward op for layers, `append_backward` and SGD, from 1,000 to 50,000 ops; and for each op of
the whole program, to write it as bytes and to read it again.

The program is the chain of `small_ops.py` with one matrix that all share: a parameter that is read 10,000 times.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time

from common import header, row

import fluid


def build(ops):
    """Seconds for forward, backward and update ops, and to write and read them all; the number of ops in the end."""
    main, startup = fluid.Program(), fluid.Program()
    gc.collect()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        start = time.perf_counter()
        h = fluid.layers.data("x", [32])
        bias = fluid.layers.create_parameter([32], "float32", "bias")
        weight = fluid.layers.create_parameter([32, 32], "float32", "weight")
        for _ in range(ops // 5):
            h = fluid.layers.elementwise_add(fluid.layers.tanh(h), bias)
            h = fluid.layers.matmul(fluid.layers.tanh(h * 0.9), weight)
        loss = fluid.layers.mean(h)
        forward = time.perf_counter()
        optimizer = fluid.optimizer.SGD(0.1)
        gradients = fluid.backward.append_backward(loss)
        backward = time.perf_counter()
        optimizer.apply_gradients(gradients)
        end = time.perf_counter()
    data = main.serialize_to_string()
    written = time.perf_counter()
    fluid.Program.parse_from_string(data)
    read = time.perf_counter()
    return forward - start, backward - forward, end - backward, written - end, read - written, len(main.global_block().ops)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", type=int, nargs="+", default=[1_000, 5_000, 10_000, 50_000], help="sizes (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="times that each size is built (%(default)s)")
    args = parser.parse_args()
    header("Building: microseconds per forward op", torch=False)
    build(args.ops[0])
    print("forward ops   layers  backward     SGD     all   ops in the program   write    read  (per op of the program)")
    totals, writing, reading = [], [], []
    for ops in args.ops:
        parts = [build(ops) for _ in range(args.rounds)]
        total = statistics.median(sum(part[:3]) for part in parts) / ops * 1e6
        layers, backward, sgd = (statistics.median(part[i] for part in parts) / ops * 1e6 for i in range(3))
        count = parts[0][5]
        write, read = (statistics.median(part[i] for part in parts) / count * 1e6 for i in (3, 4))
        print(f"{ops:11,} {layers:8.2f} {backward:9.2f} {sgd:7.2f} {total:7.2f} {count:20,} {write:7.2f} {read:7.2f}", flush=True)
        totals.append(total)
        writing.append(write)
        reading.append(read)
    sizes = ", ".join(f"{ops:,}" for ops in args.ops)
    print()
    row("building, per forward op", _listed(totals), remark=f"at {sizes} ops; most to least: {max(totals) / min(totals):.2f}")
    row("writing, per op", _listed(writing), remark="the same programs, with all their ops, as bytes")
    row("reading, per op", _listed(reading), remark="and back")


def _listed(times):
    """Times in microseconds as text."""
    return ", ".join(f"{each:.1f}" for each in times) + " µs"


if __name__ == "__main__":
    main()
