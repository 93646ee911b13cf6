"""The story that the tests of recognition and of determinism share."""

from __future__ import annotations

from pathlib import Path

from tests.pipelines.cluster_story import ClusterStory


def write_incidents(lake: Path, *, seed: int = 7) -> None:
    """One lake with every incident, each in a group of its own, and groups without any."""
    story = ClusterStory(lake, seed=seed)
    for group in (
        "calm",
        "frozen",
        "dead-queue",
        "killed",
        "handed",
        "ghost",
        "reset",
        "gone",
        "twice",
        "popping",
    ):
        story.group(group, [f"{group}-1", f"{group}-2"])
    story.group("failing", ["failing-1"], queues=1)
    story.group("paused", ["paused-1"], queues=1)
    story.group("idle", ["idle-1"], queues=1, rate=0)
    story.group("radio", ["radio-1"], queues=1)
    story.queue("radio", 0).message_model = "BROADCASTING"
    story.group("restarted", ["restarted-1"], queues=1, rate=0)
    restarted = story.queue("restarted", 0)
    restarted.max_offset = 9
    story.group("deleted", ["deleted-1"], rate=0)
    story.queue("deleted", 0).max_offset = 5
    # At noon sharp: the ten minutes of offset_health that end here have a report.
    story.commit(story.queue("idle", 0), 0, path="COMMIT_RPC", client="idle-1")
    story.run(32)
    story.freeze(story.queue("frozen", 0))
    dead = story.queue("dead-queue", 1)
    dead.is_pulled, dead.is_forgotten = False, True
    story.queue("paused", 0).is_pulled = False
    story.run(8)
    lost = story.lose("killed", "killed-1", reason="CONNECTION_LOST")
    story.run(2)
    for queue in lost:
        story.assign(queue, "killed-2")
    story.run(2)
    story.join("handed", "handed-3")
    story.assign(story.queue("handed", 1), "handed-3")
    ghost = story.queue("ghost", 0)
    story.commit(ghost, 100, path="COMMIT_RPC", client="ghost-0")
    reset = story.queue("reset", 0)
    story.commit(reset, 150, path="RESET", client=None)
    for client in ("gone-1", "gone-2"):
        story.lose("gone", client, kind="EXPIRED", reason="HEARTBEAT_EXPIRED")
    story.run(6)
    for queue_id in range(2):
        story.send_again(story.queue("twice", queue_id), message_id="TWICE")
    story.pop(story.queue("popping", 0), message_id="NOT-ACKNOWLEDGED", out=3)
    story.fail(story.queue("failing", 0), message_id="POISON", times=2)
    story.run(40)
    story.queue("frozen", 0).frozen_at = None
    story.queue("paused", 0).is_pulled = True
    story.run(10)
    story.delete_topic("topic-deleted")
    story.run(4)
    story.make_again("deleted", "topic-deleted", "deleted-1").max_offset = 3
    story.run(6)
    story.crash_broker(down_s=3)
    story.commit(restarted, 8, path="COMMIT_RPC", client="restarted-1")
    story.delete_unread(story.queue("reset", 0), 5)
    story.reuse(story.queue("calm", 0), before="LOST-A", now="NEW-A")
    story.run(20)
    story.restart_broker(down_s=2)
    story.commit(restarted, 7, path="COMMIT_RPC", client="restarted-1")
    story.run(6)
