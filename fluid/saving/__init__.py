"""Models and checkpoints: files, together with the scopes that hold their values."""
