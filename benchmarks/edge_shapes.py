"""Checks every sample of every op with dimensions of 0 and 1 in each place: some 30,000. No speed is measured here.

What is wrong is printed; `--op softmax` checks the samples of one op.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "ops"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--op", action="append", help="an op to check; all by default")
    options = parser.parse_args()
    from edge_shapes import all_edges, check_edge

    start, count, taken, wrong = time.perf_counter(), 0, 0, 0
    for op_type, edges in all_edges().items():
        for edge in edges if not options.op or op_type in options.op else ():
            count += 1
            try:
                taken += check_edge(edge)
            except AssertionError as error:
                wrong += 1
                print(error)
    print(f"{count} edges: {taken} right, {count - taken - wrong} refused, {wrong} wrong; {time.perf_counter() - start:.0f} s")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
