"""The rules of volume scheduling: pure functions over plain values, one home for each rule.

No I/O, clock, randomness or globals; it may import `volsched.model` only, and everything above may import it.
"""
