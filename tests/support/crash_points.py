"""Places at which a binding is crashed."""

# Crashes ----------------------------------------------------------------------------------------------
POINTS = ("executor.claimed", "commit.before", "commit.after", "executor.recorded")


CALLS = ("executor.calling", "executor.called")
