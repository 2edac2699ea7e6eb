"""What layers are written with: arguments and their checks, parameters, indexing."""
