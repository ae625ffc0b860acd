"""`python -m volsched`, for where the command is not on the path."""

from volsched.cli import main

main()
