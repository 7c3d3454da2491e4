"""A probe of confluent-kafka (librdkafka), all settings at their defaults: gaps.py ADDRESSES TOPIC PARTITIONS. See gaps_test.go."""
import sys
import threading
import time

import confluent_kafka as ck

addr, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
producer = ck.Producer({'bootstrap.servers': addr})
last, gap, sent = [0.0] * count, [0.0] * count, [0.0] * count
taken = threading.Condition()


def acked(partition, at, err):
    if err:
        print('partition %d: %s' % (partition, err), file=sys.stderr, flush=True)
        return
    with taken:
        now = time.monotonic()
        if last[partition]:
            gap[partition] = max(gap[partition], now - last[partition])
        last[partition], sent[partition] = now, at
        taken.notify_all()


def orders():
    for _ in sys.stdin:
        now = time.monotonic()
        with taken:
            # Until each partition has taken a record that was sent after the order.
            taken.wait_for(lambda: all(s > now for s in sent))
            print(*[int(g * 1000) for g in gap], flush=True)
            gap[:] = [0.0] * count


listener = threading.Thread(target=orders, daemon=True)
listener.start()
while listener.is_alive():
    for i in range(count):
        at = time.monotonic()
        producer.produce(topic, value='x', partition=i, on_delivery=lambda e, m, i=i, at=at: acked(i, at, e))
    end = time.monotonic() + 0.01
    while (left := end - time.monotonic()) > 0:
        producer.poll(left)
