"""Programs compiled by XLA, through jax; the only package that imports it. See README.md here."""
