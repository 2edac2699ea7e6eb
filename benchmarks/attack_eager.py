"""Runs random eager programs beside torch, and names each that differs: `--first NUMBER --programs 1` repeats it. No speed is
measured here."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first program")
    arguments = parser.parse_args()
    from random_eager import difference, random_steps

    warnings.simplefilter("ignore")
    start, wrong = time.time(), 0
    for number in range(arguments.first, arguments.first + arguments.programs):
        said = difference(number)
        if said:
            wrong += 1
            print(f"{number}: {said}\n  {random_steps(number)[2]}")
    print(f"{wrong} of {arguments.programs} programs differ; {time.time() - start:.0f} s")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
