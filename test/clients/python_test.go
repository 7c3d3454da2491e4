package clients

import (
	"os/exec"
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
var kafkaPython = []string{"kafka-python==2.0.6", "six==1.17.0"}

func TestKafkaPython(t *testing.T) {
	bin, n := python(t, kafkaPython...), start(t)
	in := lines(testnode.Rounds(2_000, 50_000))
	for _, version := range []string{"0.8.2", "0.9", "0.10.0", "default"} {
		for _, codec := range []string{"none", "gzip"} {
			t.Run(version+" "+codec, func(t *testing.T) {
				same(t, in, client(t, in, bin, "-c", script, n.Addr, "python-"+version+"-"+codec, version, codec))
			})
		}
	}
}

// TestKafkaPythonGroup: kafka-python told that the broker is 0.10.1, and as it is.
func TestKafkaPythonGroup(t *testing.T) {
	together(t)
	group := func(version string) func(t *testing.T, n *testnode.Node) {
		return func(t *testing.T, n *testnode.Node) {
			cmd := exec.Command(python(t, kafkaPython...), "testdata/kafka_python.py", version)
			startProgram(t, n, "python", "python-"+version, cmd).live(life{protocol: "range", extras: true})
		}
	}
	t.Run("0.10.1", func(t *testing.T) { oldClient(t, group("0.10.1")) })
	if testnode.Full() {
		t.Run("default", func(t *testing.T) { bothSystems(t, group("default")) })
	}
}

// TestConfluentPython: today's librdkafka behind confluent-kafka.
func TestConfluentPython(t *testing.T) {
	together(t)
	for _, l := range []life{{protocol: "cooperative-sticky", cooperative: true}, {protocol: "range"}} {
		t.Run(l.protocol, func(t *testing.T) {
			if l.protocol == "range" && !testnode.Full() {
				t.Skip("WEIR_FULL=1 runs the other assignor")
			}
			bothSystems(t, func(t *testing.T, n *testnode.Node) {
				cmd := exec.Command(python(t, "confluent-kafka==2.16.1"), "testdata/confluent.py", "partition.assignment.strategy="+l.protocol)
				startProgram(t, n, "confluent", "confluent-"+l.protocol, cmd).live(l)
			})
		})
	}
}

// TestPykafka: the last pykafka, whose simple consumer speaks the oldest versions there are. Members of its groups do not
// outlive the node, and those that come after them wait for their sessions to end; so that is left to the long form.
func TestPykafka(t *testing.T) {
	together(t)
	pykafka := func(t *testing.T, n *testnode.Node) *crew {
		return startProgram(t, n, "pykafka", "pykafka", exec.Command(python(t, "pykafka==2.8.0", "six==1.17.0"), "testdata/pykafka_crew.py"))
	}
	if !testnode.Full() {
		n := start(t)
		topic(t, n, "pykafka", groupPartitions, nil)
		c := pykafka(t, n)
		c.send(1000)
		n.Kill(t)
		n.Start(t)
		c.send(2000)
		c.join("a", "")
		c.awaitShares(groupPartitions, "a")
		c.awaitRecords()
		c.awaitCommitted()
		c.check()
		c.extras()
		c.leave("a")
		return
	}
	oldClient(t, func(t *testing.T, n *testnode.Node) { pykafka(t, n).live(life{protocol: "range", extras: true}) })
}
