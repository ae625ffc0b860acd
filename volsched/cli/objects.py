"""Changing objects: `apply`, `create`, `delete`, `import`."""

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated

import typer
from rich.markup import escape

from volsched.cli.completion import complete_kind_or_name
from volsched.cli.console import Exit, fail, stderr, stdout
from volsched.cli.kind_names import NamespaceOption, named_targets
from volsched.cli.manifest_input import (
    Files,
    Kustomization,
    NamespaceOfManifests,
    SkipForeign,
    field_problems,
    load_within,
)
from volsched.cli.operator import Reason, actor, checked_reason
from volsched.cli.progress import progress_bar
from volsched.cli.remote.server_choice import chosen_server
from volsched.cli.store_option import Db, opened, opened_or_empty
from volsched.kube.kinds import Kind
from volsched.kube.manifest_reader import Loaded, dump_manifests, load_manifests
from volsched.kube.problems import ManifestError
from volsched.log.commands import ConflictError, Done
from volsched.log.database import Database
from volsched.log.events.streams import kind_called
from volsched.log.reads.as_of import view_at_head
from volsched.objects.rules.field_check import UndecodableError
from volsched.objects.rules.object_events import AlreadyExistsError, ForbiddenError, NotFoundError
from volsched.objects.submission import (
    Submitter,
    Target,
    Verb,
    ensure_namespaces,
    named_namespaces,
    namespace_manifest,
)
from volsched.questions.audit.orphans import adoption_warnings
from volsched.questions.get.near_names import not_found
from volsched.runtime.clock import system_clock
from volsched.runtime.settings import Settings
from volsched.workloads.rules.repairs import ZonalReport

APPLY_EXAMPLES = """**Examples**

`volsched apply -f cluster.yaml` creates or changes every object of the file

`kubectl get pv,sc -o yaml | volsched apply -f -`

`helm template db ./chart | volsched apply -n shop --skip-foreign -f -`

`volsched apply -f nodes/ --dry-run=server` only says what would be created, configured or refused

`volsched apply -f nodes/ --reason "two racks more"` keeps why with every change
"""
CREATE_EXAMPLES = """**Examples**

`volsched create -f pod.yaml` creates the objects of the file; existing ones are refused

`volsched create -f - < pod.yaml`
"""
DELETE_EXAMPLES = """**Examples**

`volsched delete pod db-0 -n shop --reason "moved to the new cluster"`

`volsched delete pvc data-0 data-1`

`volsched delete -f cluster.yaml` deletes every object that the file names
"""
IMPORT_EXAMPLES = """**Examples**

`kubectl get ns,nodes,sc,pv,pvc,pods,sts,csidrivers,csinodes,csistoragecapacities,volumeattachments
-A -o yaml > dump.yaml`

`volsched import --db copy.db -f dump.yaml` creates the store copy.db from it
"""
CODES = (
    (NotFoundError, Exit.NOT_FOUND),
    (AlreadyExistsError, Exit.CONFLICT),
    (ConflictError, Exit.CONFLICT),
)


class DryRun(StrEnum):
    none = "none"
    client = "client"
    server = "server"

    @property
    def remark(self) -> str:
        return {"none": "", "client": " (dry run)", "server": " (server dry run)"}[self.value]


DryRunOption = Annotated[
    DryRun,
    typer.Option(
        "--dry-run",
        help="Only say what would be done; with --server, 'client' only reads from it and 'server' lets it check.",
    ),
]
MaybeFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--filename", "-f", metavar="FILE|DIR|URL|-", help="Delete the objects that these manifests name."
    ),
]


def apply(
    files: Files = None,
    kustomize: Kustomization = None,
    skip_foreign: SkipForeign = False,
    namespace: NamespaceOfManifests = None,
    dry_run: DryRunOption = DryRun.none,
    reason: Reason = None,
    db: Db = None,
) -> None:
    """Create the objects of manifests, or change existing ones to match.

    Fields that a manifest does not name stay as they are. Each object is written by itself: if one is refused, the
    others are written nevertheless, and the command ends with 1.
    """
    loaded = load_within(files, kustomize, namespace, dump=skip_foreign)
    submit_objects(loaded, Verb.APPLY, reason, db, dry_run)


def create(
    files: Files = None,
    kustomize: Kustomization = None,
    skip_foreign: SkipForeign = False,
    namespace: NamespaceOfManifests = None,
    dry_run: DryRunOption = DryRun.none,
    reason: Reason = None,
    db: Db = None,
) -> None:
    """Create the objects of manifests; exit 7 if one exists already."""
    loaded = load_within(files, kustomize, namespace, dump=skip_foreign)
    submit_objects(loaded, Verb.CREATE, reason, db, dry_run)


def delete(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KIND NAME",
            help="What to delete: pod db-0, pv/disk-7, or use -f.",
            autocompletion=complete_kind_or_name,
        ),
    ] = None,
    files: MaybeFiles = None,
    kustomize: Kustomization = None,
    skip_foreign: SkipForeign = False,
    namespace: NamespaceOption = None,
    dry_run: DryRunOption = DryRun.none,
    reason: Reason = None,
    db: Db = None,
) -> None:
    """Delete objects by name, or all that manifests name.

    An object with finalizers (every claim and volume has one) is only marked: it goes when these are gone.
    """
    described = bool(files) or kustomize is not None
    if bool(names) == described:
        fail(Exit.USAGE, "say what to delete, in one way: KIND NAME, or -f FILE")
    because = checked_reason(reason)
    if described:
        loaded = load_within(files, kustomize, namespace, dump=skip_foreign)
        targets = [Target(entry.kind, entry.key) for entry in loaded]
    else:
        targets = named_targets(names or [], namespace)
    refused: list[tuple[Target, Exception]] = []
    for target, gone in _delete(targets, because, db, dry_run):
        if isinstance(gone, Exception):
            refused.append((target, gone))
        else:
            done = "deleted" if gone else "is marked, and goes when its finalizers are gone"
            stdout.print(escape(f"{target.kind.name.lower()}/{target.key} {done}{dry_run.remark}"))
    if refused:
        fail(
            _code([outcome for _, outcome in refused]),
            *(_refusal_text(target.kind, target.key, outcome) for target, outcome in refused),
        )


def import_dump(
    files: Files = None,
    kustomize: Kustomization = None,
    namespace: NamespaceOfManifests = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse unknown kinds and fields, which are otherwise skipped.")
    ] = False,
    reason: Reason = None,
    db: Db = None,
) -> None:
    """Import a cluster as `kubectl get -o yaml` prints it, into an empty store: all of it or nothing.

    It also reads the directory of a must-gather or of an unpacked Velero backup. Objects of kinds that volsched
    does not know are skipped, and a field that it does not know causes a warning.

    Uids, ages and status are kept, so that what is bound stays bound. A volume whose claim is not in the dump is
    refused: it would look as if its claim had been deleted. Exit 1 if the store is not empty.
    """
    because = checked_reason(reason)
    loaded = load_within(files, kustomize, namespace, dump=not strict)
    if strict and (problems := field_problems(loaded)):
        fail(Exit.FAILURE, *problems)
    missing = named_namespaces(loaded)
    loaded = [*load_manifests(_namespaces(missing), source="the namespaces of the input"), *loaded]
    with opened(db, creates=True) as database:
        submitter = _submitter(database, "import", because)
        try:
            with progress_bar(f"Importing {len(loaded)} objects", None):
                outcome = submitter.adopt(loaded)
        except ManifestError as error:
            fail(Exit.FAILURE, *(str(problem) for problem in error.problems))
    if isinstance(outcome, Exception):
        fail(Exit.FAILURE, f"nothing was imported: {outcome}")
    _report_created(missing)
    for warning in adoption_warnings(loaded):
        stderr.print(f"[yellow]warning:[/] {escape(warning)}")
    counts = Counter(entry.kind.name for entry in loaded)
    stdout.print(f"imported {', '.join(f'{count} {kind}' for kind, count in sorted(counts.items()))}")


def _namespaces(names: Sequence[str]) -> bytes:
    return dump_manifests(namespace_manifest(name) for name in names).encode()


def submit_objects(
    loaded: list[Loaded], verb: Verb, reason: str | None, db: str | None, dry_run: DryRun = DryRun.none
) -> None:
    because = checked_reason(reason)
    report = ZonalReport()
    refused: list[tuple[Loaded, Exception]] = []
    for entry, applied in _submit(loaded, verb, because, db, report, dry_run):
        if isinstance(applied, Exception):
            refused.append((entry, applied))
        else:
            stdout.print(escape(f"{entry.kind.name.lower()}/{entry.key} {applied}{dry_run.remark}"))
    if not report.empty:
        stderr.print(str(report))
    if refused:
        fail(
            _code([outcome for _, outcome in refused]),
            *(f"{it.place}: {_refusal_text(it.kind, it.key, outcome)}" for it, outcome in refused),
        )


def _refusal_text(kind: Kind, key: str, refusal: Exception) -> str:
    """Adds the object where the message has none: for admission and the field check, a request's path names it."""
    named = {ForbiddenError: " is forbidden", UndecodableError: ""}
    relation = next((relation for error, relation in named.items() if isinstance(refusal, error)), None)
    return str(refusal) if relation is None else f'{kind.name} "{key}"{relation}: {refusal}'


def _submit(
    loaded: list[Loaded], verb: Verb, reason: str | None, db: str | None, report: ZonalReport, dry_run: DryRun
) -> Iterator[tuple[Loaded, str | Exception]]:
    """The outcome of each object, in order, in a store or on a server."""
    server = chosen_server(db)
    if server is not None and dry_run is not DryRun.none:
        from volsched.cli.remote.dry_run import rehearse

        yield from rehearse(server, loaded, verb, judged=dry_run is DryRun.server)
        return
    if server is not None:
        from volsched.cli.remote.commands import create_namespaces, submit

        _report_created(create_namespaces(server, named_namespaces(loaded), reason=reason))
        yield from submit(server, loaded, verb, reason=reason)
        return
    if dry_run is not DryRun.none:
        with opened_or_empty(db) as database:
            for entry, result in _submitter(database, verb.value, reason).rehearse(loaded, verb):
                yield entry, result if isinstance(result, Exception) else result["applied"]
        return
    with opened(db, creates=True) as database:
        names = named_namespaces(loaded)
        _report_created(ensure_namespaces(database, names, actor=actor(verb.value), now=system_clock()))
        for entry, outcome in _submitter(database, verb.value, reason).submit(loaded, verb, report=report):
            yield entry, outcome if isinstance(outcome, Exception) else outcome.result["applied"]


def _report_created(namespaces: Sequence[str]) -> None:
    for name in namespaces:
        stderr.print(escape(f"note: namespace {name} did not exist, and is created for the objects in it"))


def _delete(
    targets: list[Target], reason: str | None, db: str | None, dry_run: DryRun
) -> Iterator[tuple[Target, bool | Exception]]:
    """Whether each is gone; False: it is marked."""
    server = chosen_server(db)
    if server is not None and dry_run is not DryRun.none:
        from volsched.cli.remote.dry_run import rehearse_deletion

        yield from rehearse_deletion(server, targets, judged=dry_run is DryRun.server)
        return
    if server is not None:
        from volsched.cli.remote.commands import delete_targets

        yield from delete_targets(server, targets, reason=reason)
        return
    with opened(db) as database:
        submitter = _submitter(database, "delete", reason)
        rehearses = dry_run is not DryRun.none
        outcomes = submitter.rehearse_deletion(targets) if rehearses else submitter.delete(targets)
        for target, outcome in zip(targets, outcomes, strict=True):
            if isinstance(outcome, NotFoundError):
                yield target, NotFoundError(_near(database, target))
            elif isinstance(outcome, Exception):
                yield target, outcome
            else:
                yield target, bool((outcome.result if isinstance(outcome, Done) else outcome)["gone"])


def _submitter(database: Database, verb: str, reason: str | None) -> Submitter:
    return Submitter(
        database=database,
        clock=system_clock,
        actor=actor(verb),
        reason=reason,
        zonal_upgrade=not Settings().disable_zonal_upgrade,
    )


def _near(database: Database, target: Target) -> str:
    with database.read() as connection:
        return not_found(view_at_head(connection), kind_called(target.kind.name), target.key)


def _code(refusals: Sequence[Exception]) -> Exit:
    """The exit code that all refusals share; for a mixture, 1."""
    codes = {next((code for kind, code in CODES if isinstance(it, kind)), Exit.FAILURE) for it in refusals}
    return codes.pop() if len(codes) == 1 else Exit.FAILURE
