"""What a node does with the pods that are assigned to it.

Pure rules over values; `engine.nodes.agent` shows them the world and carries out what they answer.
"""
