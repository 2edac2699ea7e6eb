"""One op on arrays: its kernel bound to them, or compiled to a function."""
