"""The passwords, URLs and certificates of a stack, as files: an environment is seen by too many.

Made once. What is there stays, because PostgreSQL keeps the password that it was made with.
"""

import secrets
from datetime import timedelta
from pathlib import Path

import orjson

from volsched.api.access.authority import load_authority, make_authority
from volsched.api.access.callers import Role
from volsched.api.access.certificates import organizations
from volsched.api.access.kubeconfig import kubeconfig
from volsched.api.access.secret_files import write_secret
from volsched.lab.stack.postgres_wheel import DATABASE, USER
from volsched.log.integrity.anchor_keys import make_keys

SERVER_NAMES = ("api", "localhost", "127.0.0.1", "::1")
LASTS = timedelta(days=365)
READABLE = 0o444
"""Docker mounts the file as it is, and each container reads it as another user. The directory keeps people out."""


def make_store_secrets(directory: Path, *, postgres: str, redis: str, redis_data: str, bind: str) -> None:
    """`postgres` and `redis` are HOST:PORT, as their clients reach them."""
    names = ("postgres_password", "database_url", "redis_url", "redis.conf")
    if all((directory / name).exists() for name in names):
        return
    password, queue = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
    settings = (f"bind {bind}", f"port {redis.rpartition(':')[2]}", f"requirepass {queue}", 'save ""')
    contents = (
        password,
        f"postgresql://{USER}:{password}@{postgres}/{DATABASE}",
        f"redis://default:{queue}@{redis}/0",
        "\n".join([*settings, f'dir "{redis_data}"', ""]),
    )
    for name, content in zip(names, contents, strict=True):
        write_secret(directory / name, content.encode())


def make_anchor_keys(directory: Path) -> None:
    if not (directory / "anchor.key").exists():
        make_keys(directory / "anchor.key", directory / "anchor.pub")


def make_compose_secrets(directory: Path, *, port: int = 8700) -> None:
    """Everything that docker-compose.yml names, and a kubeconfig for the person who made it."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    directory.chmod(0o700)
    make_store_secrets(directory, postgres="postgres:5432", redis="redis:6379", redis_data="/data", bind="0.0.0.0")
    if not (directory / "grafana_password").exists():
        write_secret(directory / "grafana_password", secrets.token_urlsafe(24).encode())
    make_anchor_keys(directory)
    if not (directory / "ca.crt").exists():
        make_authority(directory)
    authority = load_authority(directory)
    server = authority.for_server(SERVER_NAMES, lasts=LASTS)
    scraper = authority.for_client("prometheus", organizations([Role.VIEWER], None), lasts=LASTS)
    admin = authority.for_client("admin", organizations([Role.ADMIN], None), lasts=LASTS)
    for name, issued in (("server", server), ("prometheus", scraper)):
        write_secret(directory / f"{name}.crt", issued.certificate)
        write_secret(directory / f"{name}.key", issued.key)
    config = kubeconfig(
        f"https://localhost:{port}",
        user="admin",
        ca=authority.pem,
        certificate=admin.certificate,
        key=admin.key,
    )
    for it in directory.iterdir():
        it.chmod(0o400 if it.name == "ca.key" else READABLE)
    # JSON, which is YAML too.
    write_secret(directory / "admin.kubeconfig", orjson.dumps(config, option=orjson.OPT_INDENT_2))
