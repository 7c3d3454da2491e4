"""A crew of pykafka: pykafka_crew.py ADDR TOPIC GROUP. Its members share partitions by the group protocol, not by ZooKeeper."""
import logging
import sys
import time

from pykafka import KafkaClient
from pykafka.common import CompressionType, OffsetType
from pykafka.exceptions import KafkaException
from pykafka.partitioners import HashingPartitioner

import crew

addr, topic, group = sys.argv[1:]
logging.basicConfig(stream=sys.stderr, level=logging.ERROR)


def client():
    """A client of the node, which must be kept, as must its topics: what is below does not hold them. pykafka does not wait for a node that starts."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return KafkaClient(hosts=addr, broker_version='0.10.2')
        except (KafkaException, OSError) as e:
            if time.monotonic() > deadline:
                raise
            crew.grumble(repr(e))
            time.sleep(0.1)


def send(first, end):
    codec = [CompressionType.NONE, CompressionType.GZIP][first % 2000 != 0]
    k = client()
    with k.topics[topic].get_producer(partitioner=HashingPartitioner(), required_acks=-1, linger_ms=5, compression=codec,
                                     delivery_reports=True) as p:
        for i in range(first, end):
            p.produce(b'%d' % i, partition_key=b'%d' % i)
        for _ in range(first, end):
            m, e = p.get_delivery_report(timeout=60)
            if e:
                raise e


class Member(crew.Member):
    def work(self):
        while not self.leaving.is_set():
            k = client()
            c = k.topics[topic].get_balanced_consumer(
                group.encode(), managed=True, auto_offset_reset=OffsetType.EARLIEST, consumer_timeout_ms=50,
                heartbeat_interval_ms=300, fetch_wait_max_ms=50, rebalance_backoff_ms=100, rebalance_max_retries=20,
                post_rebalance_callback=lambda c, old, new: crew.assigned(self.name, new))
            try:
                self.read(c)
                c.stop()
            except (KafkaException, OSError, AttributeError) as e:  # the node went: a member of pykafka goes with it
                crew.grumble(self.name, repr(e))
                crew.assigned(self.name, [])

    def read(self, c):
        dirty = False
        while not self.leaving.is_set():
            r = c.consume()
            if r:
                crew.record(self.name, r.partition_id, r.offset, r.value)
                dirty = True
            elif dirty:
                c.commit_offsets()
                dirty = False


def check(right, *what):
    if not right:
        raise AssertionError(*what)


def simple(partition):
    return partition.topic.get_simple_consumer(consumer_group=group.encode() + b'-extra', partitions=[partition],
                                               auto_offset_reset=OffsetType.EARLIEST, consumer_timeout_ms=10000)


def extra():
    """The simple consumer: by partition, with commits of its own, and offsets by time as 0.8 asked for them."""
    k = client()
    t = k.topics[topic]
    p0 = t.partitions[0]
    end = p0.latest_available_offset()
    check(end > 10 and p0.earliest_available_offset() == 0, 'end', end)
    c = simple(p0)
    for want in range(5):
        check(c.consume().offset == want, 'offset', want)
    c.commit_offsets()
    c.stop()
    c = simple(p0)
    for want in range(5, end):
        check(c.consume().offset == want, 'offset after the commit', want)
    c.reset_offsets([(p0, 2)])
    check(c.consume().offset == 3, 'the record after a reset to 2')
    c.stop()


crew.main(send, Member, extra)
