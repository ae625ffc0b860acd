"""The verbs over HTTP: the choice of a server, requests to it, and the exit codes of its refusals.

A verb gets the same answer from here as from a store, and prints it with the same code.
"""
