"""The errors of questions: a command ends with one, and the API answers with one. Imports nothing."""


class UnknownError(LookupError):
    """No object has that name; the message suggests another question."""


class MissingError(UnknownError):
    """None of our own resources of this kind has that name."""

    def __init__(self, plural: str, name: str) -> None:
        super().__init__(f'{plural}.volsched.io "{name}" not found')
        self.plural, self.name = plural, name


class QuestionError(ValueError):
    """The question's parameters are invalid; the message has the remedy."""


class TokenError(ValueError):
    """`--after` is not a token that a page ended with."""

    def __init__(self, token: str) -> None:
        super().__init__(f'"{token}" is not where a page ended; give --after the token of the page before')


class MomentError(ValueError):
    """A text is not a time, or several times contradict each other; the message has the remedy."""
