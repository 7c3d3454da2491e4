// Command sarama is a crew (crew_test.go) of sarama, told that the broker is 0.10.2: sarama ADDR TOPIC GROUP.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

var (
	addr, topic, group string

	out sync.Mutex
)

func main() {
	log.SetFlags(0)
	sarama.Logger = log.New(os.Stderr, "", log.Ltime)
	addr, topic, group = os.Args[1], os.Args[2], os.Args[3]
	members := map[string]*member{}
	async := false
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		w := strings.Fields(in.Text())
		switch w[0] {
		case "send":
			send(number(w[1]), number(w[2]), async)
			async = !async
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
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		log.Fatal(err)
	}
	return n
}

func say(format string, args ...any) {
	out.Lock()
	defer out.Unlock()
	fmt.Printf(format+"\n", args...)
}

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V0_10_2_0
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Net.MaxOpenRequests = 1 // what is sent again keeps its place
	c.Producer.Flush.Frequency = 5 * time.Millisecond
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Return.Errors = true
	c.Consumer.MaxWaitTime = 50 * time.Millisecond
	c.Consumer.Group.Session.Timeout = 10 * time.Second
	c.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	return c
}

// send uses the asynchronous producer, or the synchronous one.
func send(from, to int, async bool) {
	var batch []*sarama.ProducerMessage
	for i := from; i < to; i++ {
		text := sarama.StringEncoder(strconv.Itoa(i))
		batch = append(batch, &sarama.ProducerMessage{Topic: topic, Key: text, Value: text})
	}
	if !async {
		p, err := sarama.NewSyncProducer([]string{addr}, config())
		if err == nil {
			err = p.SendMessages(batch)
		}
		if err == nil {
			err = p.Close()
		}
		if err != nil {
			log.Fatal("sync producer: ", err)
		}
		say("sent %d", to)
		return
	}
	p, err := sarama.NewAsyncProducer([]string{addr}, config())
	if err != nil {
		log.Fatal("async producer: ", err)
	}
	go func() {
		for _, m := range batch {
			p.Input() <- m
		}
	}()
	for range batch {
		select {
		case <-p.Successes():
		case err := <-p.Errors():
			log.Fatal("async producer: ", err)
		}
	}
	if err := p.Close(); err != nil {
		log.Fatal("async producer: ", err)
	}
	say("sent %d", to)
}

// member is one member of the group. It is the handler of its sessions.
type member struct {
	name   string
	group  sarama.ConsumerGroup
	cancel context.CancelFunc
	gone   chan struct{}
}

func join(name string) *member {
	g, err := sarama.NewConsumerGroup([]string{addr}, group, config())
	if err != nil {
		log.Fatal("consumer group: ", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{name: name, group: g, cancel: cancel, gone: make(chan struct{})}
	go func() {
		for err := range g.Errors() { // a restarted node is no reason to end
			log.Print(name, ": ", err)
		}
	}()
	go func() {
		defer close(m.gone)
		for ctx.Err() == nil {
			if err := g.Consume(ctx, []string{topic}, m); err != nil {
				log.Print(name, ": ", err)
				select {
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		}
	}()
	return m
}

func (m *member) leave() {
	m.cancel()
	<-m.gone
	if err := m.group.Close(); err != nil {
		log.Fatal(m.name, ": close: ", err)
	}
}

// Setup implements sarama.ConsumerGroupHandler.
func (m *member) Setup(s sarama.ConsumerGroupSession) error {
	var held []string
	claims := s.Claims()[topic]
	slices.Sort(claims)
	for _, p := range claims {
		held = append(held, strconv.Itoa(int(p)))
	}
	if held == nil {
		held = []string{"-"}
	}
	say("%s assigned %s", m.name, strings.Join(held, ","))
	return nil
}

// Cleanup implements sarama.ConsumerGroupHandler.
func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	say("%s assigned -", m.name)
	return nil
}

// ConsumeClaim implements sarama.ConsumerGroupHandler. It commits when a partition has no more records for the moment.
func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case r, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			say("%s record %d %d %s", m.name, r.Partition, r.Offset, r.Value)
			s.MarkMessage(r, "")
			if len(claim.Messages()) == 0 {
				s.Commit()
			}
		case <-s.Context().Done():
			return nil
		}
	}
}
