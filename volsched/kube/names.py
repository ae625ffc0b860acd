"""The strings that Kubernetes accepts as names, label keys, label values and annotation keys; and uids."""

import re
from functools import lru_cache
from hashlib import blake2b
from uuid import UUID

# Each `*_problem` function returns None for a legal string, else a description of the legal form.

LABEL_MAX = 63
SUBDOMAIN_MAX = 253

DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_SUBDOMAIN = rf"{DNS_LABEL}(\.{DNS_LABEL})*"
NAME_PART = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
"""The patterns as the API shows them in its messages (`validation.field_errors`)."""
LABEL_RE, SUBDOMAIN_RE, NAME_PART_RE = map(re.compile, (DNS_LABEL, DNS_SUBDOMAIN, NAME_PART))


def dns_label_problem(text: str) -> str | None:
    if len(text) <= LABEL_MAX and LABEL_RE.fullmatch(text):
        return None
    return "must be 1 to 63 lower-case letters, digits or '-', starting and ending with a letter or digit"


def dns_subdomain_problem(text: str) -> str | None:
    if len(text) <= SUBDOMAIN_MAX and SUBDOMAIN_RE.fullmatch(text):
        return None
    return (
        "must be at most 253 lower-case letters, digits, '-' or '.', "
        "each dot-separated part starting and ending with a letter or digit"
    )


@lru_cache(maxsize=4096)
def qualified_name_problem(text: str) -> str | None:
    """Label keys: an optional DNS subdomain and '/', then a name."""
    prefix, slash, name = text.rpartition("/")
    if slash and dns_subdomain_problem(prefix) is not None:
        return "must have a DNS subdomain such as example.com before its only '/'"
    if len(name) <= LABEL_MAX and NAME_PART_RE.fullmatch(name):
        return None
    return (
        "must be a name of 1 to 63 letters, digits, '-', '_' or '.', starting and ending with a letter "
        "or digit, optionally after a DNS subdomain and '/'"
    )


@lru_cache(maxsize=4096)
def label_value_problem(text: str) -> str | None:
    if text == "" or (len(text) <= LABEL_MAX and NAME_PART_RE.fullmatch(text)):
        return None
    return "must be empty or 1 to 63 letters, digits, '-', '_' or '.', starting and ending with a letter or digit"


# All uids have the form of UUIDs, because clients and other controllers parse them.


def uid_of(id_: str) -> str:
    """The uid derived from an id: deterministic, so that simulations and tests can be repeated."""
    return str(UUID(bytes=blake2b(id_.encode(), digest_size=16).digest(), version=4))
