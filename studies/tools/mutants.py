"""mutmut's own command, which counts the calls of threads too.

    python -m studies.tools.mutants run [MUTANT ...]

mutmut 3.8 remembers who calls whom in a context variable, and resetting it raises LookupError under
a pipeline's threads. ``studies.benchmarks.mutation`` uses this.
"""

from __future__ import annotations

from contextvars import Token
from typing import Any

# autosplit must not be imported here: mutmut puts a changed one in its place.
from mutmut import __main__ as mutmut
from mutmut.core import MutmutCallStack


def main() -> None:
    MutmutCallStack.reset = staticmethod(restore)
    mutmut.cli()


def restore(token: Token[Any]) -> None:
    """Set the context variable to what it was before ``token``."""
    MutmutCallStack.set((None, 0) if token.old_value is Token.MISSING else token.old_value)


if __name__ == "__main__":
    main()
