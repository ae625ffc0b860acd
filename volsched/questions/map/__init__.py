"""The data of the console: the places of volumes, claims and pods at any time, and the growth of the log."""
