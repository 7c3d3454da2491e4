"""A crew of confluent-kafka (librdkafka): confluent.py [KEY=VALUE…] ADDR TOPIC GROUP."""
import sys

import confluent_kafka as ck

import crew

addr, topic, group = sys.argv[-3:]
options = dict(o.split('=', 1) for o in sys.argv[1:-3])
producer = ck.Producer({'bootstrap.servers': addr, 'enable.idempotence': True, 'linger.ms': 5, 'reconnect.backoff.max.ms': 500})
crew.grumble('librdkafka', ck.libversion()[0])


def send(first, end):
    failed = []
    for i in range(first, end):
        producer.produce(topic, key=str(i), value=str(i), on_delivery=lambda e, m: e and failed.append(e))
    left = producer.flush(60)
    if failed or left:
        sys.exit('%d not sent, %s' % (left, failed[:1]))


class Member(crew.Member):
    def work(self):
        self.held = set()
        c = ck.Consumer({'bootstrap.servers': addr, 'group.id': group, 'auto.offset.reset': 'earliest',
                         'enable.auto.commit': False, 'session.timeout.ms': 10000, 'heartbeat.interval.ms': 300,
                         'fetch.wait.max.ms': 50, 'reconnect.backoff.max.ms': 500, **options})
        c.subscribe([topic], on_assign=self.gains, on_revoke=self.loses, on_lost=self.loses)
        while not self.leaving.is_set():
            got = c.consume(500, 0.05)
            for r in got:
                if r.error():
                    crew.grumble(self.name, r.error())
                else:
                    crew.record(self.name, r.partition(), r.offset(), r.value())
            if got:
                try:
                    c.commit(asynchronous=False)
                except ck.KafkaException as e:  # the group moved on: who has the partition now reads on
                    crew.grumble(self.name, e)
        c.close()

    def gains(self, consumer, partitions):
        self.held |= {p.partition for p in partitions}
        crew.assigned(self.name, self.held)

    def loses(self, consumer, partitions):
        self.held -= {p.partition for p in partitions}
        if not self.leaving.is_set():
            crew.assigned(self.name, self.held)


crew.main(send, Member)
