"""`volsched attach`: follow a real cluster in one process, and write decisions there or give advice."""

import logging
import re
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Annotated

import typer

from volsched.cli.api_process import ApiProcess, ClientCa, Host, Port, ServedAddress, TlsCert, TlsKey
from volsched.cli.attachment import AttachMode, TakeOver, acting_on, attachment_to
from volsched.cli.console import Exit, fail, stderr
from volsched.cli.observe import Context, Kubeconfig, own_directory
from volsched.cli.operator import user
from volsched.cli.serve import Config, arm_process, bell_of_settings, read_configuration
from volsched.cli.store_option import Db, explained
from volsched.cluster.port import CallRefusedError, ClusterError, whole
from volsched.kube.kinds import key_of
from volsched.kube.manifest import has_gate
from volsched.kube.meta import GATE, GAVE_UP
from volsched.log.store import migrate_store, open_store
from volsched.runtime.clock import system_clock
from volsched.runtime.runner import Failed, Restartable, RestartingSystem, looping, waking
from volsched.runtime.settings import database_url

if TYPE_CHECKING:
    from volsched.cluster.kubernetes.adapter import KubernetesCluster

EXAMPLES = """**Examples**

`volsched attach --mode own --context prod` schedules the pods of that cluster whose schedulerName is volsched

`volsched attach --mode advise` answers the extender calls of a kube-scheduler, and writes nothing

`volsched manifests --mode own | kubectl apply -f -` runs it in the cluster, with exactly the permissions it needs

`volsched audit retained` lists what was written and could not be taken back
"""
STORES = {AttachMode.own: "attached.db", AttachMode.gate: "gated.db", AttachMode.advise: "advised.db"}
"""Stores in the user's data directory; unlike the observer's, they hold every pod and every version. Each
mode has its own, because an open binding is carried out in the mode that planned it."""
UNGATE_TRIES = 5

Mode = Annotated[
    AttachMode,
    typer.Option(
        "--mode",
        help="own: place pods of schedulerName volsched and bind their claims. gate: bind the claims of pods "
        "behind our scheduling gate, and let their own scheduler place them. advise: answer filter and "
        "prioritize of a kube-scheduler, and write nothing.",
    ),
]


def attach(
    mode: Mode,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    db: Db = None,
    config: Config = None,
    take_over_default_scheduler: TakeOver = False,
    host: Host = "127.0.0.1",
    port: Port = 8700,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    client_ca: ClientCa = None,
) -> None:
    """Schedule pods of a real cluster: decisions are written to its API server, its own controllers do the rest.

    Kubernetes never unbinds: a claim that its PV controller has bound stays bound even if the pod's other claims
    fail. `volsched audit retained` lists what could not be undone.
    """
    arm_process()
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    configuration = read_configuration(config)
    attachment = attachment_to(kubeconfig, context, mode, takes_over_default=take_over_default_scheduler)
    with ExitStack() as outer:
        outer.enter_context(closing(attachment.cluster))
        outer.enter_context(explained())
        advises = mode is AttachMode.advise
        url = database_url(db, otherwise=lambda: f"sqlite:///{own_directory() / STORES[mode]}")
        migrate_store(url)
        database = outer.enter_context(closing(open_store(url, name=f"volsched attach {mode}")))
        make: Callable[[], Restartable]
        if advises:
            make = outer.enter_context(attachment.advisers(database))
        else:
            make = outer.enter_context(attachment.systems(database, configuration, bell_of_settings(database)))

        def begin(stack: ExitStack, failed: Failed) -> Callable[[], None]:
            system = RestartingSystem(make)
            stack.callback(system.close)
            loop = stack.enter_context(
                looping(system.step, clock=system_clock, name="volsched-system", failed=failed)
            )
            stack.enter_context(waking(database, loop.wake))
            attachment.cluster.wake_on_news(loop.wake)
            return loop.wake

        ApiProcess(
            database=database,
            where=ServedAddress(host, port, tls_cert, tls_key, client_ca),
            configuration=configuration,
            begin=begin,
            ready_line=lambda url: f"attached ({mode}); questions, API and metrics on {url} until Ctrl-C",
            failure_line="volsched attach ended: {}; what was acknowledged is kept, start it again",
            follows=True,
            binds=mode is AttachMode.own,
        ).run()


UNGATE_EXAMPLES = """**Examples**

`volsched ungate --all` when volsched is to be removed, or does not come back: no pod waits for it any more

`volsched ungate shop/db-0 shop/db-1`
"""
Pods = Annotated[list[str] | None, typer.Argument(metavar="[NS/POD]...", help="Pods that wait behind our gate.")]
All = Annotated[bool, typer.Option("--all", help="Every pod that waits behind it.")]


def ungate(
    pods: Pods = None, all_pods: All = False, kubeconfig: Kubeconfig = None, context: Context = None
) -> None:
    """Remove our scheduling gate from pods; their claims stay as they are, and their own scheduler takes over.

    It needs no store and no running volsched.
    """
    if bool(pods) is all_pods:
        fail(Exit.USAGE, "name pods as NS/POD, or give --all")
    misnamed = [it for it in pods or () if not re.fullmatch("[^/]+/[^/]+", it)]
    if misnamed:
        fail(Exit.USAGE, f"a pod is named NS/POD, as default/db-0: {', '.join(misnamed)}")
    cluster = acting_on(kubeconfig, context, AttachMode.gate)
    with closing(cluster):
        try:
            gated = [it for it in whole(cluster.list("Pod")).objects if has_gate(it)]
            chosen = [it for it in gated if all_pods or key_of("Pod", it) in (pods or ())]
            for pod in chosen:
                _ungate(cluster, key_of("Pod", pod))
        except ClusterError as error:
            fail(Exit.FAILURE, str(error))
    missing = set(pods or ()) - {key_of("Pod", it) for it in chosen}
    if missing:
        fail(Exit.NOT_FOUND, f"not behind the gate {GATE}: {', '.join(sorted(missing))}")
    stderr.print(f"{len(chosen)} pod{'' if len(chosen) == 1 else 's'} ungated")


def _ungate(cluster: "KubernetesCluster", key: str) -> None:
    """Retries if another client has just written the pod."""
    for attempt in range(UNGATE_TRIES):
        pod = cluster.get("Pod", key)
        if pod is None or not has_gate(pod):
            return
        try:
            cluster.open_gate(key, pod, annotations={GAVE_UP: f"ungated by {user()}"})
        except CallRefusedError:
            if attempt == UNGATE_TRIES - 1:
                raise
        else:
            typer.echo(f"pod/{key} ungated")
            return
