"""Tools for writing layers: arguments and their checks, parameters, indexing."""
