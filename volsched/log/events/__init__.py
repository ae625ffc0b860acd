"""What happened, as data: the envelope of an event, its canonical bytes and hash link, the catalogue, upcasting.

Knows values (`volsched.kube`) and nothing of rules or SQL; everything above may import it.
"""
