"""Random programs at real sizes: single ops, nets with training, and programs with loops and branches, by seed.

A generator (`ops`, `nets`, `control`) makes a `Case` of `Choices`, `running` computes it by each engine, and `judging` decides by
runs in float64 which engine is wrong. `checking` does so in processes of their own and shrinks programs that fail.
``benchmarks/real_sizes.py`` is the command; ``tests/generated/test_random_sizes.py`` runs it.
"""
