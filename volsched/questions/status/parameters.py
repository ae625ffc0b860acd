"""Parameters of the glance at a store."""

from volsched.questions.parameters import AsOf, Parameters


class StatusParameters(Parameters):
    as_of: AsOf = None
