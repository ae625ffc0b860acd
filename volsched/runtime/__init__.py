"""The infrastructure of every process: settings, clock, writer, runner, and the composition root (`system`)."""
