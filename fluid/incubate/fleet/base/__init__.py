"""Who the workers are."""
