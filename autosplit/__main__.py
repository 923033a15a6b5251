"""``python -m autosplit`` is the command ``autosplit``."""

import sys

from autosplit.cli import main

sys.exit(main())
