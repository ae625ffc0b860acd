"""The rules of metadata, which are those of every kind but for what a name is."""

from volsched.kube.kinds import Kind
from volsched.kube.validation.field_errors import IMMUTABLE, FieldErrors, each, forbidden, invalid, required
from volsched.kube.validation.fields import (
    Fields,
    annotations,
    fields_at,
    items_at,
    labels,
    number_not_negative,
    text_at,
    texts_at,
)
from volsched.kube.validation.formats import Format, dns_label, dns_subdomain, qualified_name

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
    # A prefix may end as no name may: what is added ends it.
    found = each(f"{at}.generateName", generated, form(generated.removesuffix("-") + "a" if generated else "a"))
    if not name:
        found.append(required(f"{at}.name", "name or generateName is required"))
    else:
        found += each(f"{at}.name", name, form(name))
    namespace = text_at(meta, "namespace")
    if kind.namespaced:
        found += (
            each(f"{at}.namespace", namespace, dns_label(namespace))
            if namespace
            else [required(f"{at}.namespace")]
        )
    elif namespace:
        found.append(forbidden(f"{at}.namespace", "not allowed on this type"))
    found += number_not_negative(f"{at}.generation", meta.get("generation"))
    return [*found, *_common(meta, at), *_finalizers(meta, at)]


def _common(meta: Fields, at: str) -> FieldErrors:
    found = labels(f"{at}.labels", fields_at(meta, "labels"))
    found += annotations(f"{at}.annotations", fields_at(meta, "annotations"))
    return [*found, *_owners(f"{at}.ownerReferences", items_at(meta, "ownerReferences"))]


def _finalizers(meta: Fields, at: str) -> FieldErrors:
    given = texts_at(meta, "finalizers")
    found = [error for name in given for error in each(f"{at}.finalizers", name, qualified_name(name))]
    message = "name is neither a standard finalizer name nor is it fully qualified"
    for index, name in enumerate(given):
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            found.append(invalid(f"{at}.finalizers[{index}]", name, message))
    return found


def _owners(at: str, references: list[Fields]) -> FieldErrors:
    found: FieldErrors = []
    for index, reference in enumerate(references):
        for name in ("apiVersion", "kind", "name", "uid"):
            if not text_at(reference, name):
                found.append(required(f"{at}[{index}].{name}", "must not be empty"))
    controllers = [it for it in references if it.get("controller") is True]
    if len(controllers) > 1:
        first, second = (f"{text_at(it, 'kind')}/{text_at(it, 'name')}" for it in controllers[:2])
        message = (
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{first} and {second}"
        )
        found.append(invalid(at, references, message))
    return found


def update_errors(old: Fields, new: Fields) -> FieldErrors:
    before, after, at = fields_at(old, "metadata"), fields_at(new, "metadata"), "metadata"
    found: FieldErrors = []
    if before.get("deletionTimestamp"):
        added = sorted(set(texts_at(after, "finalizers")) - set(texts_at(before, "finalizers")))
        if added:
            listed = ", ".join(f'"{name}"' for name in added)
            message = (
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                f"[]string{{{listed}}}"
            )
            found.append(forbidden(f"{at}.finalizers", message))
    for name in ("name", "namespace", "uid"):
        given = text_at(after, name)
        # Whoever applies a manifest again does not know the uid.
        if given != text_at(before, name) and not (name == "uid" and not given):
            found.append(invalid(f"{at}.{name}", given, IMMUTABLE))
    return [*found, *_common(after, at), *_finalizers(after, at)]
