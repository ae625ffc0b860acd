"""volsched's own endpoints, `/apis/volsched.io/v1`: bindings, attempts, effects, reservations, and questions.

`routes` is the one table of them; the OpenAPI document and the discovery are derived from it.
"""
