"""Plain values to YAML that every reader takes for the same values."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

_DUMPER = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper
_WIDTH = 4096
# Text that YAML 1.2 readers, or kubectl's, take for a number, a boolean or null although YAML 1.1 does not.
_AMBIGUOUS = re.compile(r"[-+]?(?:\.?[0-9][0-9_.]*(?:[eE][-+]?[0-9]+)?|0[oO][0-7]+)|[yYnN]")


class _Dumper(_DUMPER):  # type: ignore[misc, valid-type]
    """Writes everything out, since anchors are a riddle in a manifest, and quotes what could be misread."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "'" if _AMBIGUOUS.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def dump_yaml(values: Iterable[Mapping[str, Any]]) -> str:
    text: str = yaml.dump_all(
        values,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        explicit_start=True,
        width=_WIDTH,
    )
    return text
