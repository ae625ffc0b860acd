"""The Celery shell around `volsched.binding.executor`: nothing is decided here, and a message carries no data.

Start it with `celery -A workers.app worker`. Nothing in `volsched` imports this package.
"""
