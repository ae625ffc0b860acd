"""Authentication and authorization of the API: TLS, tokens, client certificates, roles.

`authorization` has the table of what each role may do, `gate` is in front of every route, and `callers` identifies
the caller of a request.
"""
