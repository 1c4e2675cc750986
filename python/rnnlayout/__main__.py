"""Run the command line: python -m rnnlayout."""

import sys

from rnnlayout._cli.main import main

if __name__ == "__main__":
    sys.exit(main())
