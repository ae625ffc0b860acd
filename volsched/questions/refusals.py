"""What questions refuse: a command ends with it, and the API answers with it. Loads nothing else."""


class UnknownError(LookupError):
    """There is nothing of that name; the message says what to ask instead."""


class MissingError(UnknownError):
    """There is none of a resource of ours by that name."""

    def __init__(self, plural: str, name: str) -> None:
        super().__init__(f'{plural}.volsched.io "{name}" not found')
        self.plural, self.name = plural, name


class QuestionError(ValueError):
    """It cannot be asked like that; the message says how."""


class TokenError(ValueError):
    """`--after` is not what a page ended with."""

    def __init__(self, token: str) -> None:
        super().__init__(f'"{token}" is not where a page ended; give --after what the page before has told')


class MomentError(ValueError):
    """It is no time, or several of them contradict each other; the message says what to give instead."""
