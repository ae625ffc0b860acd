"""What runs: the writer and, to come, scheduler, executor and controller. Every loop is a `step(now)`.

Threads, wake-ups and waiting live in `runner` alone, so that a test can step the whole system by hand.
"""
