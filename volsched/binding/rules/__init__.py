"""A binding transaction: every leg of a plan ends bound, or the whole is undone without touching data.

`plan` starts one, `effects` are the work that it queues, `effect_writes` carry a leg out, `release_writes` undo
it, `leg_conditions` says whether the cluster has completed it, `saga` moves the transaction on. All pure; the
store runs `advance` with every event it commits.
"""
