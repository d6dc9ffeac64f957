"""The error a person is meant to read: what is wrong, and what to do about it."""


class UserError(Exception):
    """Bad input or a missing service. The command line prints it as one line and exits with 1.

    `message` names the thing that is wrong, `remedy` the next step. Neither may hold PII or a secret.
    """

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}. {remedy}.")
        self.message = message
        self.remedy = remedy
