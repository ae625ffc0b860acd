"""What a node does with the pods that are assigned to it (behaviour 10.1, 10.2 and A.4).

Pure rules over values; `engine.nodes.agent` shows them the world and carries out what they answer.
"""
