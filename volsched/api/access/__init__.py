"""Who may talk to the API and what they may do: TLS, tokens, client certificates, roles.

`table` is what each role may do, `gate` stands before every route, and `callers` says whose a request is.
"""
