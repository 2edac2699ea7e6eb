"""The workers and their roles."""
