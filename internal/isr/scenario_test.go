package isr

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestScenarios runs testdata/*.txt. Commands (times are in ms since the start):
//
//	leader self=1 replicas=(1,2,3) isr=(1,2,3) end=10 hw=8 min=2 [recovering] [t=0]
//	append end=12 [t=100]
//	fetch from=2 offset=12 [epoch=7] [t=100]
//	broker id=2 epoch=7 [fenced] [stopping] [gone]
//	propose t=100 [lag=1000]
//	commit isr=(1,2) pe=1 [replicas=(…)] [t=…]
//	refuse
//	min n=1
//
// Run with -rewrite to record the answers, then read the diff.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{brokers: map[int32]Broker{}}
		datadriven.RunTest(t, path, s.run)
	})
}

type scenario struct {
	l       *Leader
	brokers map[int32]Broker
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	a := args{t, d}
	now := time.UnixMilli(a.num("t", 0))
	look := func(id int32) (Broker, bool) { b, ok := s.brokers[id]; return b, ok }
	switch d.Cmd {
	case "leader":
		s.l = NewLeader(Start{
			Self: int32(a.num("self", 1)), LogEnd: a.num("end", 0), HighWatermark: a.num("hw", 0), MinISR: int32(a.num("min", 1)), Now: now,
			Assignment: Assignment{Replicas: a.ids("replicas"), ISR: a.ids("isr"), Recovering: d.HasArg("recovering")},
		})
		for _, id := range a.ids("replicas") {
			s.brokers[id] = Broker{Epoch: int64(id) * 100}
		}
	case "append":
		s.l.Appended(a.num("end", 0), now)
	case "fetch":
		id := int32(a.num("from", 0))
		if _, ok := s.l.Fetched(Fetch{Follower: id, LeaderEpoch: int32(a.num("in", int64(s.l.Assignment().LeaderEpoch))), BrokerEpoch: a.num("epoch", int64(id)*100), Offset: a.num("offset", 0), Now: now}); !ok {
			return "not accepted\n"
		}
	case "broker":
		id := int32(a.num("id", 0))
		s.brokers[id] = Broker{Epoch: a.num("epoch", int64(id)*100), Fenced: d.HasArg("fenced"), ShuttingDown: d.HasArg("stopping")}
		if d.HasArg("gone") {
			delete(s.brokers, id)
		}
		return ""
	case "propose":
		p := s.l.Propose(now, time.Duration(a.num("lag", 1000))*time.Millisecond, look)
		if p == nil {
			return "nothing\n"
		}
		var b strings.Builder
		for _, m := range p.ISR {
			fmt.Fprintf(&b, " %d@%d", m.ID, m.Epoch)
		}
		return fmt.Sprintf("propose isr%s for partition epoch %d; hw %d\n", b.String(), p.PartitionEpoch, s.l.HighWatermark())
	case "commit":
		st := s.l.Assignment()
		st.ISR, st.PartitionEpoch, st.Recovering = a.ids("isr"), int32(a.num("pe", 0)), false
		if d.HasArg("replicas") {
			st.Replicas = a.ids("replicas")
		}
		if taken, _ := s.l.Committed(st, now); !taken {
			return "stale\n"
		}
	case "refuse":
		s.l.Refused()
	case "min":
		s.l.SetMinISR(int32(a.num("n", 1)))
	default:
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
	return fmt.Sprintf("isr %v maximal %v hw %d enough %t\n", s.l.ISR(), s.l.maximal, s.l.HighWatermark(), s.l.Enough())
}

type args struct {
	t *testing.T
	d *datadriven.TestData
}

func (a args) num(key string, otherwise int64) int64 {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key && len(arg.Vals) == 1 {
			n, err := strconv.ParseInt(arg.Vals[0], 10, 64)
			if err != nil {
				a.t.Fatalf("%s: %v", a.d.Pos, err)
			}
			return n
		}
	}
	return otherwise
}

func (a args) ids(key string) []int32 {
	var out []int32
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key {
			for _, v := range arg.Vals {
				n, err := strconv.ParseInt(v, 10, 32)
				if err != nil {
					a.t.Fatalf("%s: %v", a.d.Pos, err)
				}
				out = append(out, int32(n))
			}
		}
	}
	return out
}
