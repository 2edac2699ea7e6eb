"""Formats of files and texts, one module each. None of them depends on scopes or executors."""
