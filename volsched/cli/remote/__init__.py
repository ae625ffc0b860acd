"""The verbs over HTTP: which server is meant, how it is asked, and what its refusals mean to the command.

A verb asks here for the answer that it would else find in the store, and prints it with the same code.
"""
