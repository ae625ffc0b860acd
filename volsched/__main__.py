"""`python -m volsched`, for environments where the command is not on the PATH."""

from volsched.cli import main

main()
