"""StatefulSets for tests."""

from typing import Any

from tests.support.clusters import Manifest, claim


def stateful_set(name: str = "db", replicas: int = 3, *, templates: int = 1, **spec: Any) -> Manifest:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "app"}]},
            },
            "volumeClaimTemplates": [
                {"metadata": {"name": f"data{i or ''}"}, "spec": claim("x", "1Gi")["spec"]}
                for i in range(templates)
            ],
            **spec,
        },
    }
