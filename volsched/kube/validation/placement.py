"""Where a pod may run (affinity, tolerations, spreading, gates), and the nodes themselves: taints and amounts."""

from volsched.kube.validation.field_errors import (
    NOT_POSITIVE,
    FieldErrors,
    dns_label,
    duplicate,
    each,
    forbidden,
    internal_terms,
    invalid,
    label_value,
    qualified_name,
    required,
    unsupported,
)
from volsched.kube.validation.fields import (
    Fields,
    amount_not_negative,
    fields_at,
    items_at,
    label_selector,
    node_selector,
    node_term,
    number_at,
    quantity_of,
    text_at,
    texts_at,
)

# Nodes: taints, amounts, and the few fields that are fixed once set.

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def node_creation_errors(node: Fields) -> FieldErrors:
    # The reference writes `metadata.taints`, and clients rely on it.
    errors = taint_errors("metadata.taints", items_at(fields_at(node, "spec"), "taints"))
    return [*errors, *_amount_errors(node)]


def taint_errors(at: str, taints: list[Fields]) -> FieldErrors:
    errors: FieldErrors = []
    known: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        where, key, effect = f"{at}[{index}]", text_at(taint, "key"), text_at(taint, "effect")
        errors += each(f"{where}.key", key, qualified_name(key))
        if problems := label_value(text_at(taint, "value")):
            errors.append(invalid(f"{where}.value", text_at(taint, "value"), ";".join(problems)))
        errors += effect_errors(f"{where}.effect", effect)
        if (key, effect) in known:
            shown = {"Key": key, "Value": text_at(taint, "value"), "Effect": effect, "TimeAdded": None}
            errors.append(duplicate(where, shown, "taints must be unique by key and effect pair"))
        known.add((key, effect))
    return errors


def effect_errors(at: str, effect: str) -> FieldErrors:
    if not effect:
        return [required(at)]
    return [] if effect in TAINT_EFFECTS else [unsupported(at, effect, TAINT_EFFECTS)]


def _amount_errors(node: Fields) -> FieldErrors:
    errors: FieldErrors = []
    # Allocatable defaults to the capacity.
    capacity = fields_at(node, "status", "capacity")
    amounts = {"capacity": capacity, "allocatable": {**capacity, **fields_at(node, "status", "allocatable")}}
    for name, given in amounts.items():
        for resource, raw in given.items():
            amount = quantity_of(raw)
            if amount is not None:
                errors += amount_not_negative(f"status.{name}.{resource}", amount)
    return errors


def node_update_errors(old: Fields, new: Fields) -> FieldErrors:
    errors = node_creation_errors(new)
    before, after = fields_at(old, "spec"), fields_at(new, "spec")
    if before.get("podCIDRs") and before.get("podCIDRs") != after.get("podCIDRs"):
        message = 'node updates may not change podCIDR except from "" to valid'
        errors.append(forbidden("spec.podCIDRs", message))
    known, given = text_at(before, "providerID"), text_at(after, "providerID")
    if known and given != known:
        what = "modified" if given else "cleared"
        errors.append(invalid("spec.providerID", None, f"field cannot be {what} once set"))
    return errors


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
DO_NOT_SCHEDULE = "DoNotSchedule"
UNSATISFIABLE = (DO_NOT_SCHEDULE, "ScheduleAnyway")
INCLUSION = ("Honor", "Ignore")
_WEIGHT = "must be in the range 1-100"


def affinity_errors(at: str, affinity: Fields) -> FieldErrors:
    errors = _node_affinity(f"{at}.nodeAffinity", fields_at(affinity, "nodeAffinity"))
    for name in ("podAffinity", "podAntiAffinity"):
        errors += _pod_affinity(f"{at}.{name}", fields_at(affinity, name))
    return errors


def _node_affinity(at: str, affinity: Fields) -> FieldErrors:
    errors: FieldErrors = []
    if isinstance(affinity.get(REQUIRED), dict):
        errors += node_selector(f"{at}.{REQUIRED}", affinity[REQUIRED])
    for index, term in enumerate(items_at(affinity, PREFERRED)):
        where = f"{at}.{PREFERRED}[{index}]"
        errors += _weight(where, term)
        errors += node_term(f"{where}.preference", fields_at(term, "preference"), judge_values=False)
    return errors


def _weight(at: str, term: Fields) -> FieldErrors:
    weight = number_at(term, "weight") or 0
    return [] if 1 <= weight <= 100 else [invalid(f"{at}.weight", weight, _WEIGHT)]


def _pod_affinity(at: str, affinity: Fields) -> FieldErrors:
    errors: FieldErrors = []
    for index, term in enumerate(items_at(affinity, REQUIRED)):
        errors += _pod_term(f"{at}.{REQUIRED}[{index}]", term)
    for index, weighted in enumerate(items_at(affinity, PREFERRED)):
        where = f"{at}.{PREFERRED}[{index}]"
        errors += _weight(where, weighted)
        errors += _pod_term(f"{where}.podAffinityTerm", fields_at(weighted, "podAffinityTerm"))
    return errors


def _pod_term(at: str, term: Fields) -> FieldErrors:
    errors = label_selector(f"{at}.labelSelector", term.get("labelSelector"))
    errors += label_selector(f"{at}.namespaceSelector", term.get("namespaceSelector"))
    for name in texts_at(term, "namespaces"):
        errors += each(f"{at}.namespace", name, dns_label(name))
    errors += _label_keys(at, term, ("matchLabelKeys", "mismatchLabelKeys"))
    key = text_at(term, "topologyKey")
    errors += [] if key else [required(f"{at}.topologyKey", "can not be empty")]
    return [*errors, *each(f"{at}.topologyKey", key, qualified_name(key))]


def _label_keys(at: str, holder: Fields, names: tuple[str, ...]) -> FieldErrors:
    errors: FieldErrors = []
    for name in names:
        keys = texts_at(holder, name)
        if keys and not isinstance(holder.get("labelSelector"), dict):
            errors.append(forbidden(f"{at}.{name}", "must not be specified when labelSelector is not set"))
            continue
        for index, key in enumerate(keys):
            errors += each(f"{at}.{name}[{index}]", key, qualified_name(key))
    both = "exists in both matchLabelKeys and mismatchLabelKeys"
    for index, key in enumerate(texts_at(holder, "matchLabelKeys")):
        if key in texts_at(holder, "mismatchLabelKeys"):
            errors.append(invalid(f"{at}.matchLabelKeys[{index}]", key, both))
    return errors


def toleration_errors(at: str, tolerations: list[Fields]) -> FieldErrors:
    return [error for index, it in enumerate(tolerations) for error in _toleration(f"{at}[{index}]", it)]


def _toleration(at: str, toleration: Fields) -> FieldErrors:
    key, operator, value = (text_at(toleration, name) for name in ("key", "operator", "value"))
    effect = text_at(toleration, "effect")
    errors = each(f"{at}.key", key, qualified_name(key)) if key else []
    if not key and operator != "Exists":
        message = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        errors.append(invalid(f"{at}.operator", operator, message))
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        message = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        errors.append(invalid(f"{at}.effect", effect, message))
    if operator in ("", "Equal"):
        if problems := label_value(value):
            errors.append(invalid(f"{at}.operator", value, ";".join(problems)))
    elif operator == "Exists":
        if value:
            message = "value must be empty when `operator` is 'Exists'"
            errors.append(invalid(f"{at}.operator", value, message))
    else:
        errors.append(unsupported(f"{at}.operator", operator, ("Equal", "Exists")))
    return [*errors, *(effect_errors(f"{at}.effect", effect) if effect else [])]


def gate_errors(at: str, gates: list[Fields]) -> FieldErrors:
    errors: FieldErrors = []
    known: set[str] = set()
    for index, name in enumerate(text_at(gate, "name") for gate in gates):
        errors += each(f"{at}[{index}]", name, qualified_name(name))
        if name in known:
            errors.append(duplicate(f"{at}[{index}]", name))
        known.add(name)
    return errors


def spread_errors(at: str, constraints: list[Fields]) -> FieldErrors:
    errors: FieldErrors = []
    pairs = [(text_at(it, "topologyKey"), text_at(it, "whenUnsatisfiable")) for it in constraints]
    last = {pair: index for index, pair in enumerate(pairs)}
    for index, spread in enumerate(constraints):
        where, (key, action) = f"{at}[{index}]", pairs[index]
        skew = number_at(spread, "maxSkew") or 0
        errors += [] if skew > 0 else [invalid(f"{where}.maxSkew", skew, NOT_POSITIVE)]
        errors += [] if key else [required(f"{where}.topologyKey", "can not be empty")]
        if action not in UNSATISFIABLE:
            errors.append(unsupported(f"{where}.whenUnsatisfiable", action, UNSATISFIABLE))
        if last[pairs[index]] > index:
            errors.append(duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        errors += _min_domains(f"{where}.minDomains", number_at(spread, "minDomains"), action)
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            policy = spread.get(name)
            if isinstance(policy, str) and policy not in INCLUSION:
                errors.append(unsupported(f"{where}.{name}", policy, INCLUSION))
        errors += _label_keys(where, spread, ("matchLabelKeys",))
        errors += label_selector(f"{where}.labelSelector", spread.get("labelSelector"))
    return errors


def _min_domains(at: str, least: int | None, action: str) -> FieldErrors:
    if least is None:
        return []
    errors = [] if least > 0 else [invalid(at, least, NOT_POSITIVE)]
    if action != DO_NOT_SCHEDULE:
        message = f"can only use minDomains if whenUnsatisfiable={DO_NOT_SCHEDULE}, not {action}"
        errors.append(invalid(at, least, message))
    return errors


def affinity_tightening_errors(at: str, old: Fields, new: Fields) -> FieldErrors:
    """A gated pod's allowed changes of its node affinity: it may only become stricter."""
    before = items_at(fields_at(old, REQUIRED), "nodeSelectorTerms")
    after = items_at(fields_at(new, REQUIRED), "nodeSelectorTerms")
    where = f"{at}.{REQUIRED}.nodeSelectorTerms"
    if not before:
        return []
    if len(before) != len(after):
        message = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [invalid(where, internal_terms(after), message)]
    only = "only additions are allowed (no mutations or deletions)"
    return [
        invalid(f"{where}[{index}]", internal_terms([two])[0], only)
        for index, (one, two) in enumerate(zip(before, after, strict=True))
        if not _only_adds(one, two)
    ]


def _only_adds(old: Fields, new: Fields) -> bool:
    if not items_at(old, "matchExpressions") and not items_at(old, "matchFields"):
        # An empty term selects nothing; any addition would make it select something.
        return not items_at(new, "matchExpressions") and not items_at(new, "matchFields")
    return all(
        items_at(new, name)[: len(items_at(old, name))] == items_at(old, name)
        for name in ("matchExpressions", "matchFields")
    )
