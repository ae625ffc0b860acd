"""The verbs over HTTP: which server is meant, how it is asked, and what its refusals mean to the command.

A verb gets here the answer that it would otherwise get from the store, and prints it with the same code.
"""
