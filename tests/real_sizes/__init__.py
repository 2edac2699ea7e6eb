"""Random programs at real sizes: single ops, nets with training, and programs with loops and branches, by seed.

A generator (`ops`, `nets`, `control`) makes a `Case` of `Choices`, `running` computes it by each engine, and `judging` decides by a
run in float64 who is wrong. `checking` does so in processes of their own, and shrinks what fails; ``benchmarks/real_sizes.py`` is
its command.
"""
