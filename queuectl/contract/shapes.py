"""From a pod's spec to its shape: what it requests, exactly as Kubernetes counts it, and where it may run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from queuectl.contract import names
from queuectl.contract.foreign import Expression, NodeSelector, Pod, PodSpec, PodToleration, Resources
from queuectl.model.gangs import Requirement, Shape, Term, Toleration
from queuectl.model.quantity import QuantityError, parse
from queuectl.model.resources import Amounts, amounts, highest, plus, show, unit

# The admission plugin DefaultTolerationSeconds adds these to pods but not to templates. Readiness is judged by itself, so
# they never decide placement.
_ADDED = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
_POD: Amounts = (("pods", 1),)
# Most that one pod may ask for, in our units: nine petabytes of memory, far beyond any node, and a thousand such pods on
# one node still add up inside 64 bits.
MOST = 2**53


def vector(quantities: dict[str, str] | None) -> Amounts:
    """Resource vector of quantity texts. Raises QuantityError naming what is wrong."""
    if not quantities:
        return ()
    return amounts((name, parse(text, unit(name))) for name, text in quantities.items())


def _capped(quantities: dict[str, str] | None) -> Amounts:
    """As ``vector``, but what cannot be read counts as MOST."""
    return amounts({name: _read(name, text) for name, text in (quantities or {}).items()})


def _read(name: str, text: str) -> int:
    try:
        return parse(text, unit(name))
    except QuantityError:
        return MOST


def _asked(resources: Resources | None) -> tuple[tuple[str, str], ...]:
    """Requests, defaulted from limits, as hashable pairs of text."""
    if resources is None:
        return ()
    requests, limits = resources.requests, resources.limits
    if not limits or (requests and limits.keys() <= requests.keys()):
        return tuple(requests.items()) if requests else ()
    return tuple({**limits, **(requests or {})}.items())


class Shapes:
    """Interned shapes: equal specs give the same object. Cost: about 5 µs for a spec whose parts were seen before.

    The table of shapes is bounded by what the cluster holds plus ``limit`` and is cleared when it grows beyond; equal
    shapes made before and after are still equal, only no longer the same object.
    """

    def __init__(self, limit: int = 20_000) -> None:
        self._limit = limit
        self._vectors: dict[tuple[tuple[str, str], ...], tuple[Amounts, Amounts]] = {}
        self._shapes: dict[_Key, Shape] = {}

    def of(self, spec: PodSpec) -> Shape:
        """The shape of a pod or template. Raises QuantityError when a quantity cannot be used."""
        return self._of(spec, self.requests(spec))

    def held(self, spec: PodSpec) -> tuple[Amounts, str]:
        """What a pod that is there takes from its node, and what is wrong with its requests ("" when nothing is).

        Where they cannot be read it takes all there is: ``MOST`` of that resource.
        """
        try:
            return self.requests(spec), ""
        except QuantityError as problem:
            total = self._total(spec, lambda resources: _capped(dict(_asked(resources))))
            if spec.overhead:
                total = plus(total, _capped(spec.overhead))
            return amounts({name: min(amount, MOST) for name, amount in plus(total, _POD)}), str(problem)

    def shaped(self, spec: PodSpec) -> tuple[Shape, str]:
        """The shape of a pod that is there, and what is wrong with its requests, as ``held``."""
        requests, problem = self.held(spec)
        return self._of(spec, requests), problem

    def _of(self, spec: PodSpec, requests: Amounts) -> Shape:
        affinity = spec.affinity.node_affinity if spec.affinity is not None else None
        key: _Key = (
            requests,
            tuple(sorted(spec.node_selector.items())) if spec.node_selector else (),
            affinity.required if affinity is not None else None,
            spec.tolerations or (),
            tuple(unmodelled(spec)) if _may_be_unmodelled(spec) else (),
        )
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= self._limit:
                self._shapes.clear()
            shape = self._shapes[key] = _shape(key)
        return shape

    def requests(self, spec: PodSpec) -> Amounts:
        """Effective requests of a pod, plus ``pods: 1``.

        The rule of k8s.io/component-helpers/resource: containers and restartable init containers run side by side; an
        ordinary init container i runs beside the restartable ones before it; the larger counts; then pod-level
        resources replace what they name, and overhead is added. Raises QuantityError, also for a sum above ``MOST``.
        """
        if len(spec.containers) == 1 and not (spec.init_containers or spec.resources or spec.overhead):
            return self._vector(_asked(spec.containers[0].resources))[1]
        total = self._total(spec, lambda resources: self._vector(_asked(resources))[0])
        if spec.overhead:
            total = plus(total, vector(spec.overhead))
        return _checked(plus(total, _POD))

    def _total(self, spec: PodSpec, read: Callable[[Resources | None], Amounts]) -> Amounts:
        """What the containers ask for together, or what the pod says of them; without overhead."""
        total: Amounts = ()
        for container in spec.containers:
            total = plus(total, read(container.resources))
        if spec.init_containers:
            for_init: Amounts = ()
            sidecars: Amounts = ()
            for container in spec.init_containers:
                own = read(container.resources)
                if container.restart_policy == "Always":
                    sidecars = plus(sidecars, own)
                    for_init = highest(for_init, sidecars)
                else:
                    for_init = highest(for_init, plus(sidecars, own))
            total = highest(plus(total, sidecars), for_init)
        if spec.resources is not None:
            total = amounts({**dict(total), **dict(read(spec.resources))})
        return total

    def _vector(self, pairs: tuple[tuple[str, str], ...]) -> tuple[Amounts, Amounts]:
        """The vector of these quantity texts, alone and with ``pods: 1``."""
        found = self._vectors.get(pairs)
        if found is None:
            if len(self._vectors) >= self._limit:
                self._vectors.clear()
            alone = _checked(vector(dict(pairs)))
            found = self._vectors[pairs] = (alone, plus(alone, _POD))
        return found


def _checked(requests: Amounts) -> Amounts:
    for name, amount in requests:
        if amount > MOST:
            raise QuantityError(f"{name}: {show(name, amount)} is more than any node can have; ask for less")
    return requests


# What a shape is made of, as it stands on the wire: requests, node selector, required node affinity, tolerations, and
# words for what is not modelled. A plain tuple, because one is built and hashed for every event of every pod.
_Key = tuple[Amounts, tuple[tuple[str, str], ...], NodeSelector | None, tuple[PodToleration, ...], tuple[str, ...]]


def _shape(key: _Key) -> Shape:
    requests, selector, required, tolerations, missing = key
    affinity = None
    if required is not None:
        affinity = tuple(
            Term(_requirements(term.match_expressions), _requirements(term.match_fields))
            for term in required.node_selector_terms or ()
        )
    return Shape(
        requests=requests,
        selector=selector,
        affinity=affinity,
        tolerations=tuple(sorted({t for t in map(_toleration, tolerations) if t.key not in _ADDED})),
        unmodelled=missing,
    )


def _toleration(one: PodToleration) -> Toleration:
    return Toleration(one.key or "", one.operator or "Equal", one.value or "", one.effect or "")


def _requirements(expressions: tuple[Expression, ...] | None) -> tuple[Requirement, ...]:
    return tuple(sorted(Requirement(e.key, e.operator, tuple(sorted(e.values or ()))) for e in expressions or ()))


def _may_be_unmodelled(spec: PodSpec) -> bool:
    """Whether ``unmodelled`` may have anything to say: most pods have none of these, and are asked about at every event."""
    if spec.affinity or spec.topology_spread_constraints or spec.resource_claims or spec.init_containers:
        return True
    for volume in spec.volumes or ():
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            return True
    for container in spec.containers:
        if container.ports:
            return True
    return spec.scheduler_name is not None and spec.scheduler_name != names.SCHEDULER


def likeness(pod: Pod) -> int:
    """Hash of what an admission chain may judge a pod's patch by, beside its shape: the same in gangs that are alike.

    Labels and annotations but for its index and owner and what we write ourselves, images and service account.
    """
    meta, spec = pod.metadata, pod.spec
    notes = (frozenset(i for i in (m or {}).items() if i[0] not in _OWN) for m in (meta.labels, meta.annotations))
    images = tuple(container.image for container in (*spec.containers, *(spec.init_containers or ())))
    return hash((*notes, images, spec.service_account_name))


_BATCH = {f"{prefix}{name}" for prefix in ("", "batch.kubernetes.io/") for name in ("controller-uid", "job-name")}
_SETS = {"statefulset.kubernetes.io/pod-name", names.POD_INDEX, names.WORKER_INDEX}
_JOB_SETS = {f"jobset.sigs.k8s.io/{name}" for name in ("job-index", "job-key", "job-global-index", "job-group-index")}
_OWN = {names.COMPLETION_INDEX, names.FENCE, names.RECORD, *_BATCH, *_SETS, *_JOB_SETS}


def unmodelled(spec: PodSpec) -> Iterable[str]:
    """Required constraints of a pod that the engine does not model, as words for people."""
    for container in (*spec.containers, *(spec.init_containers or ())):
        for port in container.ports or ():
            if port.host_port:
                yield f"host port {port.host_port}"
    for volume in spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield f"volume claim {volume.persistent_volume_claim.claim_name}"
        elif volume.ephemeral is not None:
            yield f"ephemeral volume {volume.name}"
    if spec.affinity is not None:
        if spec.affinity.pod_affinity is not None and spec.affinity.pod_affinity.required:
            yield "required pod affinity"
        if spec.affinity.pod_anti_affinity is not None and spec.affinity.pod_anti_affinity.required:
            yield "required pod anti-affinity"
    for spread in spec.topology_spread_constraints or ():
        if spread.when_unsatisfiable == "DoNotSchedule":
            yield f"hard topology spread over {spread.topology_key}"
    if spec.resource_claims:
        yield "resource claims"
    if spec.scheduler_name and spec.scheduler_name != names.SCHEDULER:
        yield f"scheduler {spec.scheduler_name}"
