"""The log, its views and the effects queue in SQL: the only source of truth.

All SQL is here, for SQLite and PostgreSQL alike; only `dialects` differs between them.
"""
