"""Events as data: the envelope of an event, its canonical bytes and hash link, the catalogue, upcasting.

Knows values (`volsched.kube`) but neither rules nor SQL; everything above may import it.
"""
