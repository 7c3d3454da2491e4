"""A crew of kafka-python: kafka_python.py VERSION ADDR TOPIC GROUP. VERSION is what it is told of the broker, or "default"."""
import sys
import time

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import CommitFailedError, KafkaError
from kafka.structs import OffsetAndMetadata

import crew

version, addr, topic, group = sys.argv[1:]
conf = {'bootstrap_servers': addr}
if version != 'default':
    conf['api_version'] = tuple(int(x) for x in version.split('.'))
producer = KafkaProducer(acks='all', retries=100, linger_ms=5, max_in_flight_requests_per_connection=1, **conf)


def send(first, end):
    for f in [producer.send(topic, key=b'%d' % i, value=b'%d' % i) for i in range(first, end)]:
        f.get(timeout=60)


def consumer(group):
    return KafkaConsumer(group_id=group, auto_offset_reset='earliest', enable_auto_commit=False,
                         session_timeout_ms=10000, heartbeat_interval_ms=300, fetch_max_wait_ms=50, **conf)


class Member(crew.Member, ConsumerRebalanceListener):
    def work(self):
        c = consumer(group)
        c.subscribe([topic], listener=self)
        while not self.leaving.is_set():
            got = c.poll(50)
            for tp, records in got.items():
                for r in records:
                    crew.record(self.name, tp.partition, r.offset, r.value)
            if got:
                try:
                    c.commit()
                except (CommitFailedError, KafkaError) as e:  # the group moved on: who has the partition now reads on
                    crew.grumble(self.name, repr(e))
        c.close()

    def on_partitions_assigned(self, assigned):
        crew.assigned(self.name, [tp.partition for tp in assigned])

    def on_partitions_revoked(self, revoked):
        if not self.leaving.is_set():
            crew.assigned(self.name, [])


def check(right, *what):
    if not right:
        raise AssertionError(*what)


def extra():
    """Offsets by time, seek, commits of both kinds, with a group of its own."""
    p0 = TopicPartition(topic, 0)
    c = consumer(group + '-extra')
    c.assign([p0])
    end = c.end_offsets([p0])[p0]
    check(end > 10 and c.beginning_offsets([p0])[p0] == 0, 'end', end)
    c.seek(p0, 7)
    r = next(c)
    check(r.offset == 7, 'after seek to 7 comes', r)
    for ms, want in ((r.timestamp, range(8)), (1, [0])):
        found = c.offsets_for_times({p0: ms})[p0]
        check(found.offset in want, 'offsets_for_times', ms, found)
    found = c.offsets_for_times({p0: int(time.time() * 1000) + 3600000})[p0]
    check(found is None, 'offsets_for_times of the future', found)
    c.commit({p0: OffsetAndMetadata(3, 'three')})
    check(c.committed(p0, metadata=True) == OffsetAndMetadata(3, 'three'), c.committed(p0, metadata=True))
    answers = []
    c.commit_async({p0: OffsetAndMetadata(5, '')}, callback=lambda offsets, answer: answers.append(answer))
    deadline = time.monotonic() + 30
    while not answers and time.monotonic() < deadline:
        c.poll(50)
    check(answers and not isinstance(answers[0], Exception), 'commit_async', answers)
    c.close()
    c = consumer(group + '-extra')
    c.assign([p0])
    r = next(c)
    check(r.offset == 5, 'after the commit of 5 comes', r)
    c.close()


crew.main(send, Member, extra)
producer.close()
