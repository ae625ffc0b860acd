"""A binding transaction: every leg of a plan ends bound, or the whole is undone without touching data.

`planning` starts one, `acts` are the writes that carry a leg out or undo it, `judging` says whether the cluster
has completed it, `saga` moves the transaction on. All pure; the store runs `advance` with every event it commits.
"""
