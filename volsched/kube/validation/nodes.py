"""Nodes: taints, amounts, and the few fields that are fixed once set."""

from volsched.kube.validation.field_errors import (
    FieldErrors,
    duplicate,
    each,
    forbidden,
    invalid,
    required,
    unsupported,
)
from volsched.kube.validation.fields import Fields, amount_not_negative, fields_at, items_at, quantity_of, text_at
from volsched.kube.validation.formats import label_value, qualified_name

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def node_creation_errors(node: Fields) -> FieldErrors:
    # The reference says `metadata.taints`, and clients have learnt it.
    found = taint_errors("metadata.taints", items_at(fields_at(node, "spec"), "taints"))
    return [*found, *_amount_errors(node)]


def taint_errors(at: str, taints: list[Fields]) -> FieldErrors:
    found: FieldErrors = []
    known: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        where, key, effect = f"{at}[{index}]", text_at(taint, "key"), text_at(taint, "effect")
        found += each(f"{where}.key", key, qualified_name(key))
        if problems := label_value(text_at(taint, "value")):
            found.append(invalid(f"{where}.value", text_at(taint, "value"), ";".join(problems)))
        found += effect_errors(f"{where}.effect", effect)
        if (key, effect) in known:
            shown = {"Key": key, "Value": text_at(taint, "value"), "Effect": effect, "TimeAdded": None}
            found.append(duplicate(where, shown, "taints must be unique by key and effect pair"))
        known.add((key, effect))
    return found


def effect_errors(at: str, effect: str) -> FieldErrors:
    if not effect:
        return [required(at)]
    return [] if effect in TAINT_EFFECTS else [unsupported(at, effect, TAINT_EFFECTS)]


def _amount_errors(node: Fields) -> FieldErrors:
    found: FieldErrors = []
    # What may be given out is all that there is, where nothing else is said.
    capacity = fields_at(node, "status", "capacity")
    amounts = {"capacity": capacity, "allocatable": {**capacity, **fields_at(node, "status", "allocatable")}}
    for name, given in amounts.items():
        for resource, raw in given.items():
            amount = quantity_of(raw)
            if amount is not None:
                found += amount_not_negative(f"status.{name}.{resource}", amount)
    return found


def node_update_errors(old: Fields, new: Fields) -> FieldErrors:
    found = node_creation_errors(new)
    before, after = fields_at(old, "spec"), fields_at(new, "spec")
    if before.get("podCIDRs") and before.get("podCIDRs") != after.get("podCIDRs"):
        message = 'node updates may not change podCIDR except from "" to valid'
        found.append(forbidden("spec.podCIDRs", message))
    known, given = text_at(before, "providerID"), text_at(after, "providerID")
    if known and given != known:
        what = "modified" if given else "cleared"
        found.append(invalid("spec.providerID", None, f"field cannot be {what} once set"))
    return found
