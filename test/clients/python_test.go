package clients

import (
	"testing"

	"weir/test/testnode"
)

// script produces lines and reads them again, with one client.
const script = `
import sys
from kafka import KafkaProducer, KafkaConsumer, TopicPartition
addr, topic, version, codec = sys.argv[1:5]
conf = {'bootstrap_servers': addr}
if version != 'default':
    conf['api_version'] = tuple(int(x) for x in version.split('.'))
sent = sys.stdin.buffer.read().splitlines()
p = KafkaProducer(acks='all', compression_type=None if codec == 'none' else codec, linger_ms=5, **conf)
futures = [p.send(topic, value=v, key=None if i % 3 else str(i).encode(), partition=0) for i, v in enumerate(sent)]
for i, f in enumerate(futures):
    m = f.get(timeout=60)
    if m.offset != i:
        sys.exit('record %d got offset %d' % (i, m.offset))
p.close()
c = KafkaConsumer(consumer_timeout_ms=30000, **conf)
tp = TopicPartition(topic, 0)
c.assign([tp])
c.seek_to_beginning(tp)
got = []
while len(got) < len(sent):
    m = next(c)
    if m.offset != len(got):
        sys.exit('offset %d after %d records' % (m.offset, len(got)))
    if m.key != (None if m.offset % 3 else str(m.offset).encode()):
        sys.exit('offset %d has key %r' % (m.offset, m.key))
    got.append(m.value)
c.close()
sys.stdout.buffer.write(b''.join(v + b'\n' for v in got))
`

// TestKafkaPython: kafka-python as it is, and told that the broker is 0.8.2.
func TestKafkaPython(t *testing.T) {
	bin, n := python(t), start(t)
	in := lines(testnode.Rounds(2_000, 50_000))
	for _, version := range []string{"0.8.2", "0.9", "0.10.0", "default"} {
		for _, codec := range []string{"none", "gzip"} {
			t.Run(version+" "+codec, func(t *testing.T) {
				same(t, in, client(t, in, bin, "-c", script, n.Addr, "python-"+version+"-"+codec, version, codec))
			})
		}
	}
}
