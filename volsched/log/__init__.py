"""The log, its views and the effects queue in SQL: the only truth there is.

SQL has its one home here, on SQLite and PostgreSQL alike; only `dialects` differs between them.
"""
