"""`volsched manifests`: what an administrator reviews and applies to run volsched in the cluster."""

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import typer

from volsched.cli.console import Exit, fail, stderr
from volsched.cluster.install_manifests import Installation, helm_files, kustomize_files
from volsched.cluster.install_manifests import manifests as objects_of
from volsched.cluster.permissions import ADVISE, GATE_MODE, OBSERVE
from volsched.cluster.projection import shown_projection
from volsched.kube.names import dns_label_problem, dns_subdomain_problem
from volsched.kube.yaml_values import dump_yaml

EXAMPLES = """**Examples**

`volsched manifests --mode observe | kubectl apply -f -` installs it in namespace volsched

`kubectl -n volsched port-forward deploy/volsched-observer 8700` then reaches it

`volsched manifests --mode observe -o helm --to chart` writes a chart; `-o kustomize --to base` a base

`volsched manifests --mode own --database-secret volsched-db` schedules pods of schedulerName volsched

`volsched manifests --mode advise --tls-secret volsched-tls` answers kube-scheduler (docs/extender.md)

`volsched manifests --show-projection` lists every field that is ever kept of an object
"""


class Packaging(StrEnum):
    yaml = "yaml"
    kustomize = "kustomize"
    helm = "helm"


def manifests(
    mode: Annotated[
        Literal["observe", "advise", "gate", "own"],
        typer.Option(
            help="What it may do: observe and advise write nothing; gate binds claims; own places pods too."
        ),
    ] = "observe",
    output: Annotated[Packaging, typer.Option("--output", "-o", help="Form of the output.")] = Packaging.yaml,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Directory for kustomize or helm files.")
    ] = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace to run in.")] = "volsched",
    image: Annotated[str, typer.Option(help="The image to run, preferably by digest.")] = "volsched:latest",
    tls_secret: Annotated[
        str | None,
        typer.Option("--tls-secret", metavar="NAME", help="A kubernetes.io/tls secret: adds a Service."),
    ] = None,
    service_monitor: Annotated[
        bool, typer.Option("--service-monitor", help="Add a ServiceMonitor for Prometheus' operator.")
    ] = False,
    database_secret: Annotated[
        str | None,
        typer.Option(
            "--database-secret", metavar="NAME", help="own: a Secret with a PostgreSQL URL as `url`; two replicas."
        ),
    ] = None,
    owned_class: Annotated[
        list[str] | None,
        typer.Option(
            "--owned-class", metavar="NAME", help="own: a StorageClass for our pods only; may be repeated."
        ),
    ] = None,
    binding_scheduler: Annotated[
        list[str] | None,
        typer.Option(
            "--binding-scheduler",
            metavar="NAME",
            help="own: the schedulerName of a kube-scheduler whose extender binds through us; its pods may use "
            "owned classes too.",
        ),
    ] = None,
    flow_schema: Annotated[
        bool, typer.Option("--flow-schema", help="own: add a FlowSchema with kube-scheduler's priority level.")
    ] = False,
    show_projection: Annotated[
        bool, typer.Option("--show-projection", help="Print what is kept of every kind, and nothing else.")
    ] = False,
) -> None:
    """Print ServiceAccount, role, Deployment and NetworkPolicy; with a certificate, Service and ServiceMonitor."""
    if show_projection:
        typer.echo("\n".join(shown_projection()))
        return
    if service_monitor and tls_secret is None:
        fail(Exit.USAGE, "a ServiceMonitor scrapes the Service, which needs a certificate; give --tls-secret NAME")
    if mode == OBSERVE and (database_secret or owned_class or binding_scheduler or flow_schema):
        fail(
            Exit.USAGE,
            "--database-secret, --owned-class and --flow-schema are for a mode that acts; add --mode own",
        )
    if owned_class and mode in (ADVISE, GATE_MODE):
        fail(Exit.USAGE, f"pods of an owned class need schedulerName volsched, which mode {mode} never places")
    if binding_scheduler and not owned_class:
        fail(Exit.USAGE, "--binding-scheduler may use owned classes; name them with --owned-class")
    if to is not None and output is Packaging.yaml:
        fail(Exit.USAGE, "--to is for -o helm and -o kustomize; plain YAML goes to standard output")
    if mode == ADVISE and tls_secret is None:
        fail(Exit.USAGE, "kube-scheduler asks an adviser from another pod, by TLS; give --tls-secret NAME")
    _check_names(
        {
            "--namespace": ([namespace], dns_label_problem),
            "--image": ([image], _image_problem),
            "--tls-secret": ([] if tls_secret is None else [tls_secret], dns_subdomain_problem),
            "--database-secret": ([] if database_secret is None else [database_secret], dns_subdomain_problem),
            "--owned-class": (owned_class or (), dns_subdomain_problem),
            "--binding-scheduler": (binding_scheduler or (), dns_subdomain_problem),
        }
    )
    installation = Installation(
        namespace=namespace,
        image=image,
        tls_secret=tls_secret,
        monitored=service_monitor,
        mode=mode,
        database_secret=database_secret,
        owned_classes=tuple(owned_class or ()),
        binding_schedulers=tuple(binding_scheduler or ()),
        prioritized=flow_schema,
    )
    if output is Packaging.yaml:
        typer.echo(dump_yaml(objects_of(installation)), nl=False)
        return
    if to is None:
        fail(Exit.USAGE, f"-o {output} is several files; say where they go with --to DIR")
    files = (
        kustomize_files(installation)
        if output is Packaging.kustomize
        else helm_files(installation, version=version("volsched"))
    )
    for name, documents in files.items():
        path = to / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dump_yaml(documents))
        except OSError as error:
            fail(Exit.FAILURE, f"{path} cannot be written: {error.strerror}; choose another directory with --to")
    stderr.print(f"{mode}: {len(files)} files in {to}")


def _check_names(given: Mapping[str, tuple[Iterable[str], Callable[[str], str | None]]]) -> None:
    """Names that no server would accept; a quote would also end the name in the expression of a policy."""
    for option, (names, problem_of) in given.items():
        for name in names:
            if (problem := problem_of(name)) is not None:
                fail(Exit.USAGE, f'{option} "{name}": {problem}')


def _image_problem(image: str) -> str | None:
    return (
        None
        if image and not re.search(r"\s", image)
        else "must be a reference such as volsched:1.0, without spaces"
    )
