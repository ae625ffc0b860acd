"""How many requests are made from an OpenAPI document: few unless more are asked for, the same ones every time."""

import os

from hypothesis import HealthCheck, Phase, settings


def schema_examples(few: int) -> settings:
    """`VOLSCHED_SCHEMA_EXAMPLES` asks for more of them."""
    return settings(
        max_examples=int(os.environ.get("VOLSCHED_SCHEMA_EXAMPLES", few)),
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
