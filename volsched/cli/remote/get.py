"""Paths of the API."""

from urllib.parse import quote

from volsched.log.events.streams import KIND_OF_NOUN, Named

OWN = "/apis/volsched.io/v1"


def own(*segments: str, namespace: str | None = None) -> str:
    """A path of our own endpoints; each segment is one name, whatever characters it has."""
    within = () if namespace is None else ("namespaces", namespace)
    return "/".join((OWN, *(quote(it, safe="") for it in (*within, *segments))))


def collection(named: Named, namespace: str | None) -> str:
    """The objects of a Kubernetes kind; namespace None: of every namespace, or cluster-wide ones."""
    version = KIND_OF_NOUN[named.noun].api_version
    within = "" if namespace is None else f"/namespaces/{quote(namespace, safe='')}"
    return f"/{'apis' if '/' in version else 'api'}/{version}{within}/{named.plural}"


def one(named: Named, key: str) -> str:
    namespace, _, name = key.rpartition("/")
    return f"{collection(named, namespace or None)}/{quote(name, safe='')}"
