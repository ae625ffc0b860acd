"""What every process runs on: settings, clock, writer, runner, and the composition root (`system`)."""
