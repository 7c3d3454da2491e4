// Command librdkafka is a crew (crew_test.go) of librdkafka 1.4, which is linked in: librdkafka [KEY=VALUE…] ADDR TOPIC GROUP.
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/confluentinc/confluent-kafka-go/kafka"
)

var (
	topic string
	conf  kafka.ConfigMap

	out sync.Mutex
)

func main() {
	log.SetFlags(0)
	last := len(os.Args) - 3
	topic = os.Args[last+1]
	conf = kafka.ConfigMap{"bootstrap.servers": os.Args[last], "group.id": os.Args[last+2], "auto.offset.reset": "earliest",
		"enable.auto.commit": false, "session.timeout.ms": 10000, "heartbeat.interval.ms": 300, "fetch.wait.max.ms": 50, "reconnect.backoff.max.ms": 500}
	for _, option := range os.Args[1:last] {
		must(conf.Set(option))
	}
	p, err := kafka.NewProducer(&kafka.ConfigMap{"bootstrap.servers": os.Args[last], "enable.idempotence": true, "linger.ms": 5, "reconnect.backoff.max.ms": 500})
	must(err)
	_, version := kafka.LibraryVersion()
	log.Print("librdkafka ", version)
	members := map[string]*member{}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		w := strings.Fields(in.Text())
		switch w[0] {
		case "send":
			send(p, number(w[1]), number(w[2]))
		case "join":
			members[w[1]] = join(w[1])
		case "leave":
			members[w[1]].leave()
			delete(members, w[1])
			say("%s left", w[1])
		default:
			log.Fatalf("what is %q", in.Text())
		}
	}
	for _, m := range members {
		m.leave()
	}
	p.Close()
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	must(err)
	return n
}

func say(format string, args ...any) {
	out.Lock()
	defer out.Unlock()
	fmt.Printf(format+"\n", args...)
}

func send(p *kafka.Producer, from, to int) {
	acks := make(chan kafka.Event, to-from)
	for i := from; i < to; i++ {
		text := []byte(strconv.Itoa(i))
		must(p.Produce(&kafka.Message{TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: kafka.PartitionAny}, Key: text, Value: text}, acks))
	}
	for range to - from {
		must((<-acks).(*kafka.Message).TopicPartition.Error)
	}
	say("sent %d", to)
}

// member is one member of the group, with a goroutine of its own.
type member struct {
	name     string
	consumer *kafka.Consumer
	held     []int32
	leaving  chan struct{}
	gone     chan struct{}
}

func join(name string) *member {
	own := kafka.ConfigMap{}
	for k, v := range conf {
		own[k] = v
	}
	c, err := kafka.NewConsumer(&own)
	must(err)
	m := &member{name: name, consumer: c, leaving: make(chan struct{}), gone: make(chan struct{})}
	must(c.Subscribe(topic, m.rebalanced))
	go m.run()
	return m
}

func (m *member) leave() {
	close(m.leaving)
	<-m.gone
}

func (m *member) rebalanced(c *kafka.Consumer, e kafka.Event) error {
	m.held = nil
	switch e := e.(type) {
	case kafka.AssignedPartitions:
		for _, p := range e.Partitions {
			m.held = append(m.held, p.Partition)
		}
		must(c.Assign(e.Partitions))
	case kafka.RevokedPartitions:
		m.commit()
		must(c.Unassign())
	}
	list := "-"
	slices.Sort(m.held)
	for i, p := range m.held {
		if i == 0 {
			list = strconv.Itoa(int(p))
		} else {
			list += "," + strconv.Itoa(int(p))
		}
	}
	say("%s assigned %s", m.name, list)
	return nil
}

// run reads and commits each time there is no record at once.
func (m *member) run() {
	defer close(m.gone)
	dirty := false
	for {
		select {
		case <-m.leaving:
			must(m.consumer.Close())
			return
		default:
		}
		wait := 50
		if dirty {
			wait = 0
		}
		switch e := m.consumer.Poll(wait).(type) {
		case *kafka.Message:
			must(e.TopicPartition.Error)
			say("%s record %d %d %s", m.name, e.TopicPartition.Partition, e.TopicPartition.Offset, e.Value)
			dirty = true
		case nil:
			if dirty {
				m.commit()
				dirty = false
			}
		default:
			log.Print(m.name, ": ", e)
		}
	}
}

func (m *member) commit() {
	if _, err := m.consumer.Commit(); err != nil { // nothing to commit, or the group moved on: who has the partition now reads on
		log.Print(m.name, ": commit: ", err)
	}
}
