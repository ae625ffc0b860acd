"""What a node does with the pods that are assigned to it.

Pure rules over values; `node_agent.agent` passes them the world and carries out their steps.
"""
