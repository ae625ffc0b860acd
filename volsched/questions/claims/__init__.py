"""The state of claims towards their volumes and pods, whichever scheduler binds them: half bound, used, unused."""
