"""Files and texts: one module a format. They know neither scopes nor executors."""
