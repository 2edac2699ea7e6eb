"""Not yet."""
