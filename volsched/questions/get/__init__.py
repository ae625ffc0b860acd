"""The data of `get` and `describe`: documents, columns, similar names."""
