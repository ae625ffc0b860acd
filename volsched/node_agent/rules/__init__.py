"""The rules of a node for the pods that are assigned to it.

Pure rules over values; `node_agent.agent` passes them the state of the cluster and carries out their steps.
"""
