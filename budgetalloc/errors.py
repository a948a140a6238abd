"""The errors that budgetalloc raises. Each is also a standard exception, so `except ValueError` keeps working."""


class BudgetallocError(Exception):
    """Base of every error raised on purpose by budgetalloc."""


class BudgetError(BudgetallocError, ValueError):
    """A budget that cannot be spent as asked: the text names the bound that fails and a value that would hold."""


class InputError(BudgetallocError, ValueError):
    """An argument of the wrong shape, range or type."""


class StateError(BudgetallocError, ValueError):
    """A saved state that does not fit the object it is loaded into."""


class UnsupportedError(BudgetallocError, NotImplementedError):
    """A trainer, version or option that budgetalloc cannot serve correctly, with the reason and what to do."""
