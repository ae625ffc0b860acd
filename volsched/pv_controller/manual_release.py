"""The command that returns a released volume, with all that it must be checked against."""

from volsched.log.batch import load_states
from volsched.log.commands import Command, Precondition
from volsched.log.database import Database
from volsched.log.events.decision import Decision, States
from volsched.log.events.object_states import binding_stream, living
from volsched.log.reactions import touching_bindings
from volsched.log.reads.lookups import attachments_of
from volsched.pv_controller.rules.manual_release import claim_stream, return_volume, returned_notice
from volsched.runtime.clock import rfc3339


def releasing(database: Database, name: str, *, reason: str, by: str, actor: str, now: int) -> Command | None:
    """None where there is no such volume. Whatever is planned with it or written to it meanwhile refuses this."""
    stream = f"volume/{name}"
    with database.read() as connection:
        states, _ = load_states(database, connection, [stream])
        seen = living(states, stream)
        if seen is None or seen.manifest is None:
            return None
        claim = claim_stream(seen.manifest)
        around = [stream, *((claim,) if claim else ())]
        bindings = touching_bindings(database, connection, around)
        attachments = attachments_of(connection, name)

    def decide(states: States) -> Decision:
        return Decision(events=return_volume(name, states, reason=reason, by=by, now=rfc3339(now)))

    streams = (
        *around,
        returned_notice(seen.manifest),
        *map(binding_stream, bindings),
        *(f"attachment/{key}" for key in attachments),
    )
    return Command(
        actor=actor, streams=streams, decide=decide, precondition=Precondition(versions={stream: seen.version})
    )
