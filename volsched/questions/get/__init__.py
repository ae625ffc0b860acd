"""What `get` and `describe` show: documents, columns, near names."""
