"""Parameters of `status`."""

from volsched.questions.parameters import AsOf, Parameters


class StatusParameters(Parameters):
    as_of: AsOf = None
