"""A term of inter-pod affinity, made ready: which pods it means, whoever asks."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from volsched.kube.selectors import (
    Labels,
    LabelSelector,
    Requirement,
    label_selector_matches,
    label_selector_problem,
)
from volsched.kube.workloads import Pod, PodAffinityTerm
from volsched.scheduling.rules.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    topology_key: str
    selector: LabelSelector | None
    """None means no pod."""
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None
    """Adds namespaces by their labels; None adds none."""
    weight: int = 0

    def means(self, pod: Pod, namespace: Labels) -> bool:
        """`namespace`: the labels of the pod's namespace."""
        if self.selector is None or not label_selector_matches(self.selector, pod.meta.labels):
            return False
        return self.covers(pod.namespace, namespace)

    def covers(self, name: str, labels: Labels) -> bool:
        if name in self.namespaces:
            return True
        return self.namespace_selector is not None and label_selector_matches(self.namespace_selector, labels)


def term_of(given: PodAffinityTerm, owner: Pod, *, weight: int = 0) -> AffinityTerm:
    """Without any word about namespaces, the owner's own is meant."""
    own = not given.namespaces and given.namespace_selector is None
    return AffinityTerm(
        topology_key=given.topology_key,
        selector=with_label_keys(given.label_selector, owner, given.match_label_keys, given.mismatch_label_keys),
        namespaces=frozenset([owner.namespace] if own else given.namespaces),
        namespace_selector=given.namespace_selector,
        weight=weight,
    )


def with_label_keys(
    selector: LabelSelector | None, owner: Pod, match: Iterable[str], mismatch: Iterable[str] = ()
) -> LabelSelector | None:
    """The selector narrowed by the owner's own labels. Doing so twice, after the API server, changes nothing."""
    if selector is None:
        return None
    labels = owner.meta.labels
    more = [Requirement(key, "In", (labels[key],)) for key in match if key in labels]
    more += [Requirement(key, "NotIn", (labels[key],)) for key in mismatch if key in labels]
    return replace(selector, match_expressions=(*selector.match_expressions, *more)) if more else selector


@dataclass(frozen=True, slots=True)
class Terms:
    """All of a pod's terms. A preferred one counts for its weight, an anti-affinity's against the node."""

    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred: tuple[AffinityTerm, ...] = ()


NO_TERMS = Terms()


def has_terms(pod: Pod) -> bool:
    near, far = pod.pod_affinity, pod.pod_anti_affinity
    return bool(near.required or far.required or near.preferred or far.preferred)


def terms_of(pod: Pod) -> Terms:
    if not has_terms(pod):
        return NO_TERMS
    near, far = pod.pod_affinity, pod.pod_anti_affinity
    return Terms(
        affinity=tuple(term_of(given, pod) for given in near.required),
        anti_affinity=tuple(term_of(given, pod) for given in far.required),
        preferred=(
            *(term_of(given.pod_affinity_term, pod, weight=given.weight) for given in near.preferred),
            *(term_of(given.pod_affinity_term, pod, weight=-given.weight) for given in far.preferred),
        ),
    )


def terms_problem(pod: Pod) -> str | None:
    """The first malformed selector of the pod's terms, or None."""
    near, far = pod.pod_affinity, pod.pod_anti_affinity
    given = [*near.required, *far.required]
    given += [it.pod_affinity_term for it in (*near.preferred, *far.preferred)]
    for term in given:
        for selector in (term.label_selector, term.namespace_selector):
            problem = None if selector is None else label_selector_problem(selector)
            if problem is not None:
                return problem
    return None


def sound_terms(pod: Pod) -> Terms:
    """The terms of a pod that is placed; one that cannot be understood as a whole asks for nothing."""
    return NO_TERMS if not has_terms(pod) or terms_problem(pod) is not None else terms_of(pod)


def means(term: AffinityTerm, pod: Pod, snapshot: Snapshot) -> bool:
    return term.means(pod, snapshot.namespace_labels(pod.namespace))
