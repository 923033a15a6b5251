"""The command line of autosplit on simulated hardware."""

import sys

from studies.simulation.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
