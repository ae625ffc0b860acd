"""Accessors of manifests for the rules, the checks that several kinds share, and the rules of metadata."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from volsched.kube.kinds import Kind
from volsched.kube.quantity import ZERO, Quantity, QuantityError, parse_quantity
from volsched.kube.validation.field_errors import (
    IMMUTABLE,
    NOT_NEGATIVE,
    NOT_POSITIVE,
    FieldErrors,
    Format,
    dns_label,
    dns_subdomain,
    each,
    forbidden,
    invalid,
    label_value,
    percentage,
    qualified_name,
    required,
    too_long,
)

Fields = Mapping[str, Any]
DRIVER_MAX = 63
METADATA_MAX = 256 * 1024
SET_OPERATORS = ("In", "NotIn")
PRESENCE_OPERATORS = ("Exists", "DoesNotExist")
_NEEDS_VALUES = "must be specified when `operator` is 'In' or 'NotIn'"
_TAKES_NO_VALUES = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
_NO_OPERATOR = "not a valid selector operator"


# A value of a wrong type is refused elsewhere; here it counts as absent.


def fields_at(holder: Any, *path: str) -> Fields:
    for step in path:
        holder = holder.get(step) if isinstance(holder, Mapping) else None
    return holder if isinstance(holder, Mapping) else {}


def items_at(holder: Any, name: str) -> list[Fields]:
    errors = holder.get(name) if isinstance(holder, Mapping) else None
    return [item if isinstance(item, Mapping) else {} for item in errors] if isinstance(errors, list) else []


def text_at(holder: Fields, name: str) -> str:
    value = holder.get(name)
    return value if isinstance(value, str) else ""


def texts_at(holder: Fields, name: str) -> list[str]:
    errors = holder.get(name)
    return [item for item in errors if isinstance(item, str)] if isinstance(errors, list) else []


def number_at(holder: Fields, name: str) -> int | None:
    value = holder.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def quantity_of(raw: Any) -> Quantity | None:
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        return None
    try:
        return parse_quantity(raw.strip() if isinstance(raw, str) else repr(raw))
    except QuantityError:
        return None


# --- amounts --------------------------------------------------------------------------------------------


def positive_amount(at: str, amount: Quantity) -> FieldErrors:
    return [] if amount > ZERO else [invalid(at, str(amount), NOT_POSITIVE)]


def amount_not_negative(at: str, amount: Quantity) -> FieldErrors:
    return [invalid(at, str(amount), NOT_NEGATIVE)] if amount < ZERO else []


def number_not_negative(at: str, number: int | None) -> FieldErrors:
    return [invalid(at, number, NOT_NEGATIVE)] if number is not None and number < 0 else []


# --- names ----------------------------------------------------------------------------------------------


def int_or_percent(at: str, given: Any) -> FieldErrors:
    """A count, or a percentage of at most 100."""
    if isinstance(given, str):
        errors = each(at, given, percentage(given))
        too_much = not errors and int(given.removesuffix("%")) > 100
        return [*errors, invalid(at, given, "must not be greater than 100%")] if too_much else errors
    return number_not_negative(at, given) if isinstance(given, int) else []


def labels(at: str, given: Fields) -> FieldErrors:
    errors: FieldErrors = []
    for key, value in given.items():
        errors += each(at, key, qualified_name(key))
        if isinstance(value, str):
            errors += each(at, value, label_value(value))
    return errors


def annotations(at: str, given: Fields) -> FieldErrors:
    errors = [error for key in given for error in each(at, key, qualified_name(key.lower()))]
    size = sum(len(key.encode()) + len(value.encode()) for key, value in given.items() if isinstance(value, str))
    return [*errors, too_long(at, METADATA_MAX)] if size > METADATA_MAX else errors


def class_name(at: str, name: str) -> FieldErrors:
    return each(at, name, dns_subdomain(name))


def driver_name(at: str, name: str) -> FieldErrors:
    if not name:
        return [required(at)]
    long = [too_long(at, DRIVER_MAX)] if len(name) > DRIVER_MAX else []
    return [*long, *each(at, name, dns_subdomain(name.lower()))]


# --- selectors ------------------------------------------------------------------------------------------


def label_selector(at: str, selector: Any) -> FieldErrors:
    if not isinstance(selector, Mapping):
        return []
    errors = labels(f"{at}.matchLabels", fields_at(selector, "matchLabels"))
    for index, requirement in enumerate(items_at(selector, "matchExpressions")):
        errors += _requirement(f"{at}.matchExpressions[{index}]", requirement, judge_values=True, ordered=False)
    return errors


def node_selector(at: str, selector: Fields) -> FieldErrors:
    terms = items_at(selector, "nodeSelectorTerms")
    if not terms:
        return [required(f"{at}.nodeSelectorTerms", "must have at least one node selector term")]
    return [
        error
        for index, term in enumerate(terms)
        for error in node_term(f"{at}.nodeSelectorTerms[{index}]", term, judge_values=True)
    ]


def node_term(at: str, term: Fields, *, judge_values: bool) -> FieldErrors:
    errors: FieldErrors = []
    for index, requirement in enumerate(items_at(term, "matchExpressions")):
        where = f"{at}.matchExpressions[{index}]"
        errors += _requirement(where, requirement, judge_values=judge_values, ordered=True)
    for index, requirement in enumerate(items_at(term, "matchFields")):
        errors += _field_requirement(f"{at}.matchFields[{index}]", requirement)
    return errors


def _requirement(at: str, requirement: Fields, *, judge_values: bool, ordered: bool) -> FieldErrors:
    """`ordered`: a node's labels can be compared as numbers, others cannot."""
    operator, values = text_at(requirement, "operator"), texts_at(requirement, "values")
    errors: FieldErrors = []
    if operator in SET_OPERATORS:
        if not values:
            errors.append(required(f"{at}.values", _NEEDS_VALUES))
    elif operator in PRESENCE_OPERATORS:
        if values:
            errors.append(forbidden(f"{at}.values", _TAKES_NO_VALUES))
    elif ordered and operator in ("Gt", "Lt"):
        if len(values) != 1:
            message = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            errors.append(required(f"{at}.values", message))
    else:
        errors.append(invalid(f"{at}.operator", operator, _NO_OPERATOR))
    errors += each(f"{at}.key", text_at(requirement, "key"), qualified_name(text_at(requirement, "key")))
    for index, value in enumerate(values if judge_values else ()):
        errors += each(f"{at}.values[{index}]", value, label_value(value))
    return errors


def _field_requirement(at: str, requirement: Fields) -> FieldErrors:
    operator, values = text_at(requirement, "operator"), texts_at(requirement, "values")
    errors: FieldErrors = []
    if operator not in SET_OPERATORS:
        errors.append(invalid(f"{at}.operator", operator, _NO_OPERATOR))
    elif len(values) != 1:
        message = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        errors.append(required(f"{at}.values", message))
    if text_at(requirement, "key") != "metadata.name":
        return [*errors, invalid(f"{at}.key", text_at(requirement, "key"), "not a valid field selector key")]
    for index, value in enumerate(values):
        errors += each(f"{at}.values[{index}]", value, dns_subdomain(value))
    return errors


# --- equality -------------------------------------------------------------------------------------------

_AMOUNTS = frozenset({"requests", "limits", "capacity", "overhead", "allocatable"})


def plain(value: Any, name: str = "") -> Any:
    """Normalises a value so that equal meanings compare equal: `1Gi` is `1024Mi`, and empty is absent."""
    if isinstance(value, Mapping):
        amounts = name in _AMOUNTS
        kept = {}
        for key, item in value.items():
            amount = quantity_of(item) if amounts else None
            kept[key] = amount if amount is not None else plain(item, key)
        return {key: item for key, item in kept.items() if not _is_empty(item)}
    if isinstance(value, list):
        return [plain(item, name) for item in value]
    return value


def same(one: Any, other: Any) -> bool:
    return bool(plain({"it": one}) == plain({"it": other}))


def _is_empty(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, str | Mapping | list) and not value)


def difference(type_: str, old: Fields, new: Fields) -> str:
    """The fields that differ, in the style of the reference's own diff; for people, not for parsers."""
    before, after = plain(old), plain(new)
    lines = [f"  {type_}{{"]
    for name in _names(before, after):
        if before.get(name) == after.get(name):
            continue
        title = name[:1].upper() + name[1:]
        lines += [f"-   {title}: {_json_text(old[name])},"] if name in before else []
        lines += [f"+   {title}: {_json_text(new[name])},"] if name in after else []
    return "\n".join([*lines, "    ... // other fields", "  }", ""])


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _names(*holders: Fields) -> Iterable[str]:
    return dict.fromkeys(name for holder in holders for name in holder)


# The rules of metadata, the same for every kind except for the form of a name.

_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
_LABEL_NAMES = frozenset({"Namespace", "StatefulSet"})


def _name_format(kind: Kind) -> Format:
    if kind.name == "Event":
        return lambda _: []
    if kind.name == "CSIDriver":
        # A driver is found by the provisioner that classes name, and those of volsched itself have a '/'.
        return lambda text: qualified_name(text) if "/" in text else dns_subdomain(text)
    return dns_label if kind.name in _LABEL_NAMES else dns_subdomain


def creation_errors(kind: Kind, manifest: Fields) -> FieldErrors:
    meta, at = fields_at(manifest, "metadata"), "metadata"
    name, generated = text_at(meta, "name"), text_at(meta, "generateName")
    form = _name_format(kind)
    # A prefix may end as no name may: a suffix is appended.
    errors = each(f"{at}.generateName", generated, form(generated.removesuffix("-") + "a" if generated else "a"))
    if not name:
        errors.append(required(f"{at}.name", "name or generateName is required"))
    else:
        errors += each(f"{at}.name", name, form(name))
    namespace = text_at(meta, "namespace")
    if kind.namespaced:
        errors += (
            each(f"{at}.namespace", namespace, dns_label(namespace))
            if namespace
            else [required(f"{at}.namespace")]
        )
    elif namespace:
        errors.append(forbidden(f"{at}.namespace", "not allowed on this type"))
    errors += number_not_negative(f"{at}.generation", meta.get("generation"))
    return [*errors, *_common(meta, at), *_finalizers(meta, at)]


def _common(meta: Fields, at: str) -> FieldErrors:
    errors = labels(f"{at}.labels", fields_at(meta, "labels"))
    errors += annotations(f"{at}.annotations", fields_at(meta, "annotations"))
    return [*errors, *_owners(f"{at}.ownerReferences", items_at(meta, "ownerReferences"))]


def _finalizers(meta: Fields, at: str) -> FieldErrors:
    given = texts_at(meta, "finalizers")
    errors = [error for name in given for error in each(f"{at}.finalizers", name, qualified_name(name))]
    message = "name is neither a standard finalizer name nor is it fully qualified"
    for index, name in enumerate(given):
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            errors.append(invalid(f"{at}.finalizers[{index}]", name, message))
    return errors


def _owners(at: str, references: list[Fields]) -> FieldErrors:
    errors: FieldErrors = []
    for index, reference in enumerate(references):
        for name in ("apiVersion", "kind", "name", "uid"):
            if not text_at(reference, name):
                errors.append(required(f"{at}[{index}].{name}", "must not be empty"))
    controllers = [it for it in references if it.get("controller") is True]
    if len(controllers) > 1:
        first, second = (f"{text_at(it, 'kind')}/{text_at(it, 'name')}" for it in controllers[:2])
        message = (
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{first} and {second}"
        )
        errors.append(invalid(at, references, message))
    return errors


def update_errors(old: Fields, new: Fields) -> FieldErrors:
    before, after, at = fields_at(old, "metadata"), fields_at(new, "metadata"), "metadata"
    errors: FieldErrors = []
    if before.get("deletionTimestamp"):
        added = sorted(set(texts_at(after, "finalizers")) - set(texts_at(before, "finalizers")))
        if added:
            listed = ", ".join(f'"{name}"' for name in added)
            message = (
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                f"[]string{{{listed}}}"
            )
            errors.append(forbidden(f"{at}.finalizers", message))
    for name in ("name", "namespace", "uid"):
        given = text_at(after, name)
        # A manifest that is applied again does not know the uid.
        if given != text_at(before, name) and not (name == "uid" and not given):
            errors.append(invalid(f"{at}.{name}", given, IMMUTABLE))
    return [*errors, *_common(after, at), *_finalizers(after, at)]
