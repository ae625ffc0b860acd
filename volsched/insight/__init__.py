"""Answers for people about decisions: conformance, explanations. Reads the rules, never contains one.

Only the server and the command line stand above it.
"""
