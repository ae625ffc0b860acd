"""The pools of the queue, and every way from one to another."""

from dataclasses import replace

import pytest

from tests.support.objects import node, pod, volume
from volsched.kube.workloads import Pod
from volsched.scheduling.queue.entry import OTHERS_LATER, SECOND, Pool, QueueWaits, Share, read_share
from volsched.scheduling.queue.object_changes import ObjectChange
from volsched.scheduling.queue.queue import MOST_LATE, Queue
from volsched.scheduling.rules.failure_memory import REJECTED_NODES
from volsched.scheduling.rules.snapshot import Snapshot

NOTHING = Snapshot()
BINDING = frozenset({"VolumeBinding"})
TAINTS = frozenset({"TaintToleration"})
NEW_VOLUME = ObjectChange(None, volume())


def named(name: str, *, priority: int = 0, rv: str = "1", uid: str | None = None, **meta: object) -> Pod:
    made = pod(name=name)
    changed = replace(made.meta, resource_version=rv, uid=uid or f"uid-{name}", **meta)
    return replace(made, priority=priority, meta=changed)


def taken(queue: Queue, now: int) -> list[str]:
    """Everything that can be taken now, in its order."""
    found = []
    while (pod := queue.take(now)) is not None:
        found.append(pod.name)
    return found


def rejected(queue: Queue, name: str, now: int, rejectors: frozenset[str] = BINDING) -> str:
    """A pod that was taken at a time and found no node."""
    queue.offer(named(name), now)
    assert taken(queue, now) == [name]
    queue.rejected(named(name).key, rejectors, NOTHING, now)
    return named(name).key


def test_the_order_is_priority_then_time_then_name() -> None:
    queue = Queue()
    for name, priority, time in (("c", 0, 1), ("b", 0, 2), ("a", 0, 2), ("z", 5, 9), ("y", -1, 0)):
        queue.offer(named(name, priority=priority), time)
    assert taken(queue, 10) == ["z", "c", "a", "b", "y"]


def test_a_priority_that_is_raised_moves_the_pod_forward() -> None:
    queue = Queue()
    queue.offer(named("a"), 1)
    queue.offer(named("b"), 2)
    queue.offer(named("b", priority=9, rv="2"), 3)
    assert taken(queue, 3) == ["b", "a"]


def test_a_scheduler_begins_with_its_own_share_and_then_takes_the_others() -> None:
    names = [f"pod-{i}" for i in range(40)]
    queues = [Queue(Share(number, 2)) for number in range(2)]
    for queue in queues:
        for name in names:
            queue.offer(named(name), 1)
    first, second = (taken(queue, 1) for queue in queues)
    assert sorted(first) == sorted(second) == sorted(names)
    own = first[: len(first) // 4]
    assert not set(own) & set(second[: len(second) // 4])


def test_pods_of_a_share_that_nobody_takes_are_not_put_off_for_ever() -> None:
    mine = Share(0, 2)
    names = [f"pod-{i}" for i in range(40)]
    own = [name for name in names if mine.holds(f"uid-{name}")]
    other = next(name for name in names if name not in own)
    queue = Queue(mine)
    queue.offer(named(other), 0)
    queue.offer(named(own[0]), OTHERS_LATER - 1)
    queue.offer(named(own[1]), OTHERS_LATER + 1)
    assert taken(queue, OTHERS_LATER + 1) == [own[0], other, own[1]]


def test_people_count_shares_from_one() -> None:
    assert read_share("2/4") == Share(1, 4)
    for wrong in ("0/4", "5/4", "2", "two/4", "-1/4", ""):
        with pytest.raises(ValueError, match="write 2/4 for the second of four schedulers"):
            read_share(wrong)


def test_a_share_must_be_one_of_those_there_are() -> None:
    with pytest.raises(ValueError, match="scheduler 2 of 2: the number must be from 0 to 1"):
        Share(2, 2)


def test_a_pod_in_flight_is_not_taken_twice() -> None:
    queue = Queue()
    queue.offer(named("a"), 1)
    assert taken(queue, 1) == ["a"]
    queue.offer(named("a", rv="2"), 2)
    assert taken(queue, 2) == []


@pytest.mark.parametrize(
    ("times", "seconds"), [(0, 0), (1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (6, 10), (99, 10)]
)
def test_the_back_off_doubles_up_to_ten_seconds(times: int, seconds: int) -> None:
    assert QueueWaits().backoff(times) == seconds * SECOND


# --- rejection ------------------------------------------------------------------------------------------


def test_how_long_pods_wait_can_be_set() -> None:
    queue = Queue(
        waits=QueueWaits(first_backoff=4 * SECOND, longest_backoff=6 * SECOND, unschedulable=20 * SECOND)
    )
    queue.offer(named("a"), 0)
    for at, again in ((0, 4), (4, 10), (10, 16)):
        assert taken(queue, at * SECOND) == ["a"]
        queue.failed(named("a").key, at * SECOND)
        assert queue.next_due() == again * SECOND
    assert taken(queue, 16 * SECOND) == ["a"]
    queue.rejected(named("a").key, BINDING, NOTHING, 16 * SECOND)
    assert taken(queue, 35 * SECOND) == []
    assert taken(queue, 56 * SECOND) == ["a"]


def test_a_rejected_pod_waits_for_what_could_help_it() -> None:
    queue = Queue()
    key = rejected(queue, "a", 0)
    assert queue.pool_of(key) is Pool.UNSCHEDULABLE
    assert taken(queue, 60 * SECOND) == []
    queue.happened([NEW_VOLUME], NOTHING, 60 * SECOND)
    assert taken(queue, 60 * SECOND) == ["a"]


def test_a_pod_that_is_woken_too_early_waits_for_its_back_off() -> None:
    queue = Queue()
    key = rejected(queue, "a", 0)
    queue.happened([NEW_VOLUME], NOTHING, SECOND // 2)
    assert queue.pool_of(key) is Pool.BACKING_OFF
    assert queue.next_due() == SECOND
    assert taken(queue, SECOND - 1) == []
    assert taken(queue, SECOND) == ["a"]


def test_what_concerns_other_plugins_wakes_nobody() -> None:
    queue = Queue()
    key = rejected(queue, "a", 0, TAINTS)
    queue.happened([NEW_VOLUME], NOTHING, 60 * SECOND)
    assert queue.pool_of(key) is Pool.UNSCHEDULABLE


@pytest.mark.parametrize(
    "rejectors", [frozenset[str](), frozenset({"SomeExtender"}), frozenset({"VolumeBinding", "X"})]
)
def test_a_pod_that_nobody_we_know_rejected_is_woken_by_anything(rejectors: frozenset[str]) -> None:
    queue = Queue()
    rejected(queue, "a", 0, rejectors)
    queue.happened([ObjectChange(node(), None)], NOTHING, 60 * SECOND)
    assert taken(queue, 60 * SECOND) == ["a"]


def test_a_heartbeat_wakes_nobody_not_even_them() -> None:
    queue = Queue()
    rejected(queue, "a", 0, frozenset())
    before = node()
    after = replace(before, meta=replace(before.meta, resource_version="7"))
    queue.happened([ObjectChange(before, after)], NOTHING, 60 * SECOND)
    assert taken(queue, 60 * SECOND) == []


def test_a_hint_that_fails_counts_as_yes() -> None:
    queue = Queue()
    rejected(queue, "a", 0, TAINTS)
    broken = replace(node(), taints=None)
    queue.happened([ObjectChange(node(), broken)], NOTHING, 60 * SECOND)
    assert taken(queue, 60 * SECOND) == ["a"]


def test_after_five_minutes_a_pod_is_tried_again_whatever_happened() -> None:
    queue = Queue()
    key = rejected(queue, "a", 0)
    assert queue.next_due() is None
    assert taken(queue, QueueWaits().unschedulable - 1) == []
    # Looked for every half minute.
    assert taken(queue, QueueWaits().unschedulable + 30 * SECOND) == ["a"]
    assert queue.pool_of(key) is Pool.IN_FLIGHT


def test_what_happened_while_a_pod_was_decided_is_not_lost() -> None:
    queue = Queue()
    queue.offer(named("a"), 0)
    assert taken(queue, 0) == ["a"]
    queue.happened([NEW_VOLUME], NOTHING, 0)
    queue.rejected(named("a").key, BINDING, NOTHING, 0)
    assert queue.pool_of(named("a").key) is Pool.BACKING_OFF


def test_what_happened_before_a_pod_was_taken_does_not_count_as_missed() -> None:
    queue = Queue()
    queue.offer(named("a"), 0)
    queue.offer(named("b"), 1)
    assert queue.take(1) is not None
    queue.happened([NEW_VOLUME], NOTHING, 1)
    assert queue.take(1) is not None
    queue.rejected(named("b").key, BINDING, NOTHING, 1)
    queue.rejected(named("a").key, BINDING, NOTHING, 1)
    assert queue.pool_of(named("b").key) is Pool.UNSCHEDULABLE
    assert queue.pool_of(named("a").key) is Pool.BACKING_OFF


def test_nobody_listens_where_nobody_waits() -> None:
    queue = Queue()
    queue.offer(named("a"), 0)
    assert not queue.listens
    taken(queue, 0)
    assert queue.listens
    queue.planned(named("a"))
    assert not queue.listens
    rejected(queue, "b", 0)
    assert queue.listens
    queue.forget(named("b").key)
    assert not queue.listens


# --- errors ---------------------------------------------------------------------------------------------


def test_an_error_is_tried_again_after_its_back_off_alone() -> None:
    queue = Queue()
    key = named("a").key
    queue.offer(named("a"), 0)
    now = 0
    for seconds in (1, 2, 4, 8, 10, 10):
        assert taken(queue, now) == ["a"]
        queue.failed(key, now)
        assert queue.pool_of(key) is Pool.BACKING_OFF
        assert taken(queue, now + seconds * SECOND - 1) == []
        now += seconds * SECOND


def test_errors_and_rejections_are_counted_apart() -> None:
    queue = Queue()
    key = named("a").key
    queue.offer(named("a"), 0)
    now = 0
    told = []
    for error in (False, False, True, True, False, True):
        taken(queue, now)
        if error:
            queue.failed(key, now)
        else:
            queue.rejected(key, BINDING, NOTHING, now)
            queue.happened([NEW_VOLUME], NOTHING, now)
        due = queue.next_due()
        assert due is not None
        told.append((due - now) // SECOND)
        now = due
    # The third rejection waits as a third; it sets the errors back to none.
    assert told == [1, 2, 1, 2, 4, 1]


def test_an_error_that_came_out_the_same_is_not_worth_waiting_for() -> None:
    queue = Queue()
    key = named("a").key
    queue.offer(named("a"), 0)
    taken(queue, 0)
    queue.failed(key, 0)
    assert queue.next_due() == SECOND
    taken(queue, SECOND)
    queue.failed(key, SECOND, awaited=False)
    assert queue.next_due() is None
    assert taken(queue, 3 * SECOND) == ["a"]


def test_a_plan_that_came_too_late_is_decided_again_at_once_but_not_for_ever() -> None:
    queue = Queue()
    key = named("a").key
    queue.offer(named("a"), 0)
    for _ in range(MOST_LATE):
        assert taken(queue, 0) == ["a"]
        queue.late(key, 0)
        assert queue.next_due() == 0
    assert taken(queue, 0) == ["a"]
    queue.late(key, 0)
    assert queue.next_due() == SECOND


def test_a_pod_whose_binding_failed_comes_back_with_a_back_off_that_grows() -> None:
    queue = Queue()
    key = named("a").key
    queue.offer(named("a"), 0)
    now = 0
    for seconds in (1, 2, 4):
        assert taken(queue, now) == ["a"]
        queue.planned(named("a"))
        assert queue.pool_of(key) is Pool.PLANNED
        queue.offer(named("a"), now)
        assert queue.next_due() == now + seconds * SECOND
        now += seconds * SECOND


def test_a_pod_that_another_scheduler_planned_is_taken_out_of_the_queue() -> None:
    queue = Queue()
    queue.offer(named("a"), 0)
    queue.planned(named("a"))
    assert taken(queue, 0) == []
    queue.offer(named("a"), 0)
    assert queue.pool_of(named("a").key) is Pool.BACKING_OFF


def test_a_pod_that_a_node_turned_away_comes_back_with_a_back_off() -> None:
    queue = Queue()
    queue.offer(named("a", annotations={REJECTED_NODES: "n1"}), 0)
    assert queue.pool_of(named("a").key) is Pool.BACKING_OFF


def test_a_pod_of_which_nobody_knows_what_became_keeps_its_turn() -> None:
    queue = Queue()
    queue.offer(named("a"), 0)
    queue.offer(named("b"), 1)
    assert queue.take(1) is not None
    queue.returned(named("a").key)
    assert taken(queue, 1) == ["a", "b"]


# --- the pod itself -------------------------------------------------------------------------------------


def test_a_pod_told_again_at_the_same_version_stays_where_it_is() -> None:
    queue = Queue()
    key = rejected(queue, "a", 0)
    queue.offer(replace(named("a"), priority=7), 60 * SECOND)
    assert queue.pool_of(key) is Pool.UNSCHEDULABLE


def test_a_status_that_changed_is_no_reason_to_try_again() -> None:
    queue = Queue()
    key = rejected(queue, "a", 0)
    queue.offer(replace(named("a", rv="2"), phase="Unknown"), 60 * SECOND)
    assert queue.pool_of(key) is Pool.UNSCHEDULABLE


def test_a_pod_that_asks_for_something_else_is_tried_again() -> None:
    queue = Queue()
    rejected(queue, "a", 0)
    queue.offer(replace(named("a", rv="2"), node_selector={"disk": "ssd"}), 60 * SECOND)
    assert taken(queue, 60 * SECOND) == ["a"]


def test_a_pod_changed_in_flight_is_tried_again() -> None:
    queue = Queue()
    queue.offer(named("a"), 0)
    taken(queue, 0)
    queue.offer(replace(named("a", rv="2"), node_selector={"disk": "ssd"}), 0)
    queue.rejected(named("a").key, BINDING, NOTHING, 0)
    assert queue.pool_of(named("a").key) is Pool.BACKING_OFF


def test_a_pod_made_anew_under_the_same_name_begins_anew() -> None:
    queue = Queue()
    rejected(queue, "a", 0)
    queue.offer(named("a", uid="another"), 0)
    assert taken(queue, 0) == ["a"]


def test_a_deleted_pod_is_nowhere() -> None:
    queue = Queue()
    waiting = rejected(queue, "a", 0)
    queue.offer(named("b"), 0)
    for key in (waiting, named("b").key):
        queue.forget(key)
        assert key not in queue
    queue.happened([NEW_VOLUME], NOTHING, 60 * SECOND)
    assert taken(queue, QueueWaits().unschedulable * 2) == []
    assert set(queue.counts().values()) == {0}


@pytest.mark.parametrize("rejections", [0, 4])
def test_a_pod_that_is_put_off_goes_at_once_when_a_hint_says_so(rejections: int) -> None:
    queue, now = Queue(), 0
    queue.offer(named("a"), now)
    for _ in range(rejections):
        rejected(queue, "a", now)
        now += QueueWaits().unschedulable
    assert taken(queue, now) == ["a"]
    queue.put_off(named("a").key, BINDING, NOTHING, now)
    assert (queue.pool_of(named("a").key), queue.next_due()) == (Pool.UNSCHEDULABLE, None)
    queue.happened([NEW_VOLUME], NOTHING, now + 1)
    assert taken(queue, now + 1) == ["a"], "there was a node for it, so it has no back-off"
    queue.happened([NEW_VOLUME], NOTHING, now + 1)
    queue.put_off(named("a").key, BINDING, NOTHING, now + 1)
    assert taken(queue, now + 1) == ["a"], "what it waits for came while it was decided"
