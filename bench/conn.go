package bench

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// patience bounds every answer: a system that has stopped answering must fail a measurement, not hang it.
const patience = 2 * time.Minute

// conn is one connection. Requests and answers may be used from one goroutine each.
type conn struct {
	nc   net.Conn
	r    *bufio.Reader
	fmt  *kmsg.RequestFormatter
	next int32  // correlation id
	in   []byte // the last answer
	// limit is how long an answer may take.
	limit time.Duration
}

func dial(addr string) (*conn, error) {
	nc, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	return &conn{nc: nc, r: bufio.NewReaderSize(nc, 64<<10), fmt: kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")), limit: patience}, nil
}

func (c *conn) close() { _ = c.nc.Close() } // what was asked has been answered

// ask sends a request and reads its answer into resp.
func (c *conn) ask(req kmsg.Request, resp kmsg.Response) error {
	c.next++
	if _, err := c.nc.Write(c.fmt.AppendRequest(nil, req, c.next)); err != nil {
		return err
	}
	return c.answer(req, resp)
}

// answer reads the answer to req into resp, whose bytes are valid until the next answer.
func (c *conn) answer(req kmsg.Request, resp kmsg.Response) error {
	b, err := c.frame()
	if err != nil {
		return err
	}
	b = b[4:] // correlation id: answers come in order
	if req.IsFlexible() && req.Key() != int16(kmsg.ApiVersions) {
		b = b[1:] // no tags in the header
	}
	resp.SetVersion(req.GetVersion())
	return resp.ReadFrom(b)
}

// frame reads one answer; it is valid until the next call.
func (c *conn) frame() ([]byte, error) {
	if err := c.nc.SetReadDeadline(time.Now().Add(c.limit)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(c.r, size[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(size[:]))
	if cap(c.in) < n {
		c.in = make([]byte, n)
	}
	c.in = c.in[:n]
	_, err := io.ReadFull(c.r, c.in)
	return c.in, err
}

// Versions of the requests: the highest that both systems serve and that name topics, or their ids, as real clients do.
const (
	metadataVersion       = 12
	createTopicsVersion   = 7
	deleteTopicsVersion   = 5
	initProducerIDVersion = 4
	produceVersion        = 12
	fetchVersion          = 17
	listOffsetsVersion    = 8
	electLeadersVersion   = 2
)

// answers tells whether a broker answers as a member of its cluster.
func answers(addr string, id int32) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.close()
	m, err := c.metadata()
	if err != nil {
		return err
	}
	for _, b := range m.Brokers {
		if b.NodeID == id {
			return nil
		}
	}
	return fmt.Errorf("broker %d is not among the %d that are alive", id, len(m.Brokers))
}

// metadata asks for some topics.
func (c *conn) metadata(topics ...string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewMetadataRequest()
	req.Version = metadataVersion
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	resp := kmsg.NewMetadataResponse()
	return &resp, c.ask(&req, &resp)
}

// topic is what a load needs to know of a topic.
type topic struct {
	name       string
	id         [16]byte
	partitions int32
	leaders    []string // addresses, by partition
	isr        []int    // how many replicas are in sync, by partition
	preferred  []bool   // the first replica leads, by partition
}

// createTopic makes a topic and waits for its leaders.
func createTopic(t testing.TB, s System, name string, partitions int32, replicas int16) topic {
	t.Helper()
	c := mustDial(t, s)
	defer c.close()
	if err := c.createTopic(name, partitions, replicas); err != nil {
		t.Fatalf("creating %s: %v", name, err)
	}
	var made topic
	poll(t, clusterLimit, "leaders of "+name, func() (err error) {
		if made, err = c.leaders(name); err != nil {
			return err
		}
		_, err = made.ends() // the metadata may be ahead of the leader
		return err
	})
	return made
}

// createTopic makes a topic and waits for nothing but the answer.
func (c *conn) createTopic(name string, partitions int32, replicas int16) error {
	req := kmsg.NewCreateTopicsRequest()
	req.Version, req.TimeoutMillis = createTopicsVersion, int32(patience/time.Millisecond)
	nt := kmsg.NewCreateTopicsRequestTopic()
	nt.Topic, nt.NumPartitions, nt.ReplicationFactor = name, partitions, replicas
	req.Topics = append(req.Topics, nt)
	resp := kmsg.NewCreateTopicsResponse()
	if err := c.ask(&req, &resp); err != nil {
		return err
	}
	err := kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	if errors.Is(err, kerr.TopicAlreadyExists) {
		return nil // a busy Apache broker has sent it to the controller twice; names are new
	}
	return err
}

// leaders finds a topic all of whose partitions have a leader.
func (c *conn) leaders(name string) (topic, error) {
	m, err := c.metadata(name)
	if err != nil {
		return topic{}, err
	}
	mt := m.Topics[0]
	if err := kerr.ErrorForCode(mt.ErrorCode); err != nil {
		return topic{}, err
	}
	brokers := map[int32]string{}
	for _, b := range m.Brokers {
		brokers[b.NodeID] = address(b)
	}
	n := len(mt.Partitions)
	tp := topic{name: name, id: mt.TopicID, partitions: int32(n), leaders: make([]string, n), isr: make([]int, n), preferred: make([]bool, n)}
	for _, p := range mt.Partitions {
		if p.Leader < 0 || p.ErrorCode != 0 || brokers[p.Leader] == "" {
			return topic{}, fmt.Errorf("%s-%d has leader %d, error %w", name, p.Partition, p.Leader, kerr.ErrorForCode(p.ErrorCode))
		}
		tp.leaders[p.Partition], tp.isr[p.Partition], tp.preferred[p.Partition] = brokers[p.Leader], len(p.ISR), p.Replicas[0] == p.Leader
	}
	return tp, nil
}

func address(b kmsg.MetadataResponseBroker) string {
	return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
}

// byLeader groups the partitions by who leads them. The groups are in the order of their first partitions.
func (tp topic) byLeader() [][]int32 {
	var out [][]int32
	place := map[string]int{}
	for p, addr := range tp.leaders {
		i, ok := place[addr]
		if !ok {
			i = len(out)
			place[addr] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], int32(p))
	}
	return out
}

// deleteTopic deletes a topic.
func deleteTopic(t testing.TB, s System, tp topic) {
	t.Helper()
	c := mustDial(t, s)
	defer c.close()
	req := kmsg.NewDeleteTopicsRequest()
	req.Version, req.TimeoutMillis, req.TopicNames = deleteTopicsVersion, int32(patience/time.Millisecond), []string{tp.name}
	resp := kmsg.NewDeleteTopicsResponse()
	if err := c.ask(&req, &resp); err != nil {
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
		t.Fatalf("deleting %s: %v", tp.name, err)
	}
}

func mustDial(t testing.TB, s System) *conn {
	t.Helper()
	c, err := dial(s.Bootstrap()[0])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ends asks the leaders for the log ends of a topic's partitions.
func (tp topic) ends() ([]int64, error) {
	out := make([]int64, tp.partitions)
	for _, group := range tp.byLeader() {
		c, err := dial(tp.leaders[group[0]])
		if err != nil {
			return nil, err
		}
		err = c.ends(tp, group, out)
		c.close()
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ends asks for the log ends of some partitions of a topic and puts them into out.
func (c *conn) ends(tp topic, partitions []int32, out []int64) error {
	req := kmsg.NewListOffsetsRequest()
	req.Version = listOffsetsVersion
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = tp.name
	for _, p := range partitions {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = p, -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp := kmsg.NewListOffsetsResponse()
	if err := c.ask(&req, &resp); err != nil {
		return err
	}
	for _, p := range resp.Topics[0].Partitions {
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return fmt.Errorf("%s-%d: %w", tp.name, p.Partition, err)
		}
		out[p.Partition] = p.Offset
	}
	return nil
}

// producerID asks for the id of an idempotent producer.
func (c *conn) producerID() (id int64, epoch int16, err error) {
	req := kmsg.NewInitProducerIDRequest()
	req.Version = initProducerIDVersion
	resp := kmsg.NewInitProducerIDResponse()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(patience); ; <-again.C {
		if err := c.ask(&req, &resp); err != nil {
			return 0, 0, err
		}
		// A fresh Apache Kafka answers COORDINATOR_LOAD_IN_PROGRESS until it has a block of ids.
		err = kerr.ErrorForCode(resp.ErrorCode)
		if !errors.Is(err, kerr.CoordinatorLoadInProgress) || time.Now().After(deadline) {
			return resp.ProducerID, resp.ProducerEpoch, err
		}
	}
}
