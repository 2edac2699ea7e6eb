"""Finds the first difference between the runs that the workers have stated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

_ADVICE = (
    "  all workers should build one program (no layer may depend on the rank), do the same in one order (save checkpoints, too), "
    "and be fed arrays of the same shapes: fluid.io.shard gives each its part of a batch, drop_last=True leaves out a shorter "
    "last batch"
)


def digest_of(lines: Iterable[tuple[str, str]]) -> int:
    """A number of 63 bits of lines, the same in every process."""
    import hashlib  # slow to import, and few programs need it

    text = "\n".join(line for _, line in lines)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 1


def first_difference(statements: Sequence[Sequence[tuple[str, str]]]) -> str:
    """A message about the first subject on which the workers disagree; `statements` are in the order of their ranks."""
    by_subject = [dict(lines) for lines in statements]
    subjects = dict.fromkeys(line[0] for lines in zip_longest(*statements) for line in lines if line is not None)
    for subject in subjects:
        sides = [lines.get(subject, "nothing of that kind") for lines in by_subject]
        if len(set(sides)) > 1:
            return f"the workers do not run the same: they differ in {subject}\n{_sides(sides)}\n{_ADVICE}"
    return "the workers do not run the same, though they say so; do they have different versions of this package?"


def _sides(lines: Sequence[str]) -> str:
    """Each line with the ranks of its workers."""
    ranks: dict[str, list[int]] = {}
    for rank, line in enumerate(lines):
        ranks.setdefault(line, []).append(rank)
    return "\n".join(f"  on rank {few_ranks(members)}: {line}" for line, members in ranks.items())


def few_ranks(ranks: Sequence[int], most: int = 8) -> str:
    """The first ranks of several, as text."""
    return ", ".join(map(str, ranks[:most])) + (f" and {len(ranks) - most} more" if len(ranks) > most else "")
