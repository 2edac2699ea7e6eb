"""Programs as data: blocks, operators, variables, and what can be told of them without running or differentiating."""
