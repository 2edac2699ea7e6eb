"""Programs compiled to a straight line of calls on planned memory."""
