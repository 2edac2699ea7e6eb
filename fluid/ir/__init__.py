"""Programs as data: blocks, operators, variables, and analyses that neither run nor differentiate them."""
