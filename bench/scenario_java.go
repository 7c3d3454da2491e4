package bench

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"

	"weir/test/testnode"
)

// javaScenario: the same systems under Apache Kafka's own tools for measuring, as a second line. Here the client takes
// most of a small machine.
func javaScenario(b *Bench) {
	if b.Short {
		return // each tool takes seconds to start, and the short form has no Java
	}
	b.Start()
	const records, size = 1_000_000, 1000
	createTopic(b.T, b.System, "java", partitions, 1)
	var produced, consumed []round
	for range 3 {
		produced = append(produced, b.java(records*size, regexp.MustCompile(`([\d.]+) records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg.*95th`), "kafka-producer-perf-test",
			"--topic", "java", "--num-records", strconv.Itoa(records), "--record-size", strconv.Itoa(size), "--throughput", "-1",
			"--producer-props", "bootstrap.servers="+b.System.Bootstrap()[0]))
	}
	b.put(Figure{Name: "kafka-producer-perf-test 1000 B: CPU", Unit: "s/GB", Goal: 1.0 / 2}, Value{produced[0].cpuPerGB, produced[2].cpuPerGB})
	b.put(Figure{Name: "kafka-producer-perf-test 1000 B: rate", Unit: "records/s", More: true}, Value{produced[0].perSec, produced[2].perSec})
	for range 3 {
		// Columns: start, end, MB, MB/s, records, records/s …
		consumed = append(consumed, b.java(3*records*size, regexp.MustCompile(`(?m)^[^,]+, [^,]+, [\d.]+, [\d.]+, \d+, ([\d.]+),`), "kafka-consumer-perf-test",
			"--topic", "java", "--num-records", strconv.Itoa(3*records), "--bootstrap-server", b.System.Bootstrap()[0]))
	}
	b.put(Figure{Name: "kafka-consumer-perf-test 1000 B: CPU", Unit: "s/GB", Goal: 3.0 / 4}, Value{consumed[0].cpuPerGB, consumed[2].cpuPerGB})
	b.put(Figure{Name: "kafka-consumer-perf-test 1000 B: rate", Unit: "records/s", More: true}, Value{consumed[0].perSec, consumed[2].perSec})
}

// java runs a tool that moves so many bytes and finds its records per second in what it prints.
func (b *Bench) java(bytes int64, perSec *regexp.Regexp, tool string, args ...string) round {
	b.Helper()
	cmd := exec.Command(testnode.Oracle(b.T), append([]string{tool}, args...)...)
	cmd.Env = append(os.Environ(), "KAFKA_FAST=")
	before := cpu(b.T, b.System)
	out, err := cmd.Output()
	after := cpu(b.T, b.System)
	if err != nil {
		b.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	found := perSec.FindSubmatch(out)
	if found == nil {
		b.Fatalf("%v printed no rate:\n%s", cmd.Args, out)
	}
	rate, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		b.Fatal(err)
	}
	r := round{cpuPerGB: (after - before) / (float64(bytes) / gb), perSec: rate}
	b.progress("%s: %.2f CPU s/GB, %.0f records/s", tool, r.cpuPerGB, r.perSec)
	return r
}
