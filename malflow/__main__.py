"""``python -m malflow``: the command line."""

import sys

from malflow.cli import main

if __name__ == "__main__":
    sys.exit(main())
