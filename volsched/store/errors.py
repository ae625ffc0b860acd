"""What can be wrong with a store, each with the remedy in its message."""


class StoreError(Exception):
    """The store cannot be used as asked. The message says what to do next."""


class NotMigratedError(StoreError):
    """The tables are missing or old."""


class NewerStoreError(StoreError):
    """A newer program wrote the store, and says that this one must not touch it."""


class IntegrityBrokenError(StoreError):
    """What is stored contradicts itself. Names the position."""
