"""An imitation of Redis, to try a stack without a real one: fakeredis behind two commands of Redis.

It does not enforce the password, stores nothing, and is slow. `volsched stack up` reports that it runs;
measurements, drills and tests refuse it (`lab/stack/programs.py`).
"""

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

import redis
from fakeredis import TcpFakeServer


def serve(configuration: Path) -> None:
    """Serve until SIGTERM, as `redis-server FILE` does."""
    words = (line.split(maxsplit=1) for line in configuration.read_text().splitlines() if line.strip())
    settings = dict(words)
    server = TcpFakeServer((settings["bind"], int(settings["port"])))
    server.fake_server.config[b"requirepass"] = settings["requirepass"].encode()
    # Threads of connected clients must not keep the process alive.
    server.daemon_threads = True
    # From another thread: shutdown waits for the loop that the signal has interrupted.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    with server:
        server.serve_forever()


def ping(host: str, port: int) -> bool:
    """Ping as `redis-cli ping`, with the password from the environment."""
    client = redis.Redis(host=host, port=port, password=os.environ.get("REDISCLI_AUTH"), socket_timeout=5)
    try:
        return bool(client.ping())
    except redis.RedisError as error:
        print(error, file=sys.stderr)
        return False


def main() -> None:
    parser = argparse.ArgumentParser(prog="redis-imitation", add_help=False)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("serve").add_argument("configuration", type=Path)
    ping_options = verbs.add_parser("ping", add_help=False)
    ping_options.add_argument("-h", dest="host", required=True)
    ping_options.add_argument("-p", dest="port", type=int, required=True)
    ping_options.add_argument("command", choices=["ping"])
    given = parser.parse_args()
    if given.verb == "serve":
        serve(given.configuration)
        return
    answered = ping(given.host, given.port)
    print("PONG" if answered else "no answer")
    sys.exit(0 if answered else 1)


if __name__ == "__main__":
    main()
