"""Going through a listing's pages: all of them or an error, never a part that looks like the whole."""

from collections.abc import Callable

from kaggle_orchestrator.errors import BadAnswer


def all_pages(what: str, most: int, page: Callable[[str], str]) -> None:
    """Call ``page`` with each page's token, first an empty one; it returns the next page's, empty on the last.

    Args:
        what: Names the listing, for messages.
        most: Pages; more are taken for a listing that never ends.
        page: Reads one page.

    Raises:
        BadAnswer: A token comes again, or there are more pages than can be.
    """
    token, seen = "", set[str]()
    for _ in range(most):
        token = page(token)
        if not token:
            return
        if token in seen:
            raise BadAnswer(f"Kaggle's listing of {what} has no end: a page leads back to an earlier one.")
        seen.add(token)
    raise BadAnswer(f"Kaggle's listing of {what} has no end: more than {most} pages.")
