"""The Celery shell around `volsched.binding.executor`: it decides nothing, and a message carries no data.

Start it with `celery -A workers.app worker`. Nothing in `volsched` imports this package.
"""
