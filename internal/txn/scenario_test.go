package txn

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kerr"
)

// TestScenarios runs the files of testdata/scenarios. Commands:
//
//	init ID [timeout=MS] [producer=ID epoch=N]     InitProducerId
//	add ID producer=ID epoch=N [version=2] T-P …   AddPartitionsToTxn
//	verify ID producer=ID epoch=N T-P …            the same, to be verified only
//	end ID producer=ID epoch=N commit|abort [version=1]
//	marked ID [T-P …]                              these partitions have their markers; all
//	give-up ID                                     a marker was refused for good
//	advance DURATION
//	restart                                        another node takes over
//	level N                                        the finalized transaction.version
//	ids on|off                                     whether there are producer ids
//	refuse                                         the next append, with NOT_ENOUGH_REPLICAS
//	list [states=S,…] [producers=N,…] [longer=MS]
//	show ID                                        its state and which markers are missing
//	epoch ID N                                     puts its epoch at N
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := newSim()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.out.Reset()
			if err := s.command(parseArgs(d)); err != nil {
				d.Fatalf(t, "%v", err)
			}
			return s.out.String()
		})
	})
}

type args struct {
	cmd   string
	words []string
	kv    map[string]string
}

func parseArgs(d *datadriven.TestData) args {
	a := args{cmd: d.Cmd, kv: map[string]string{}}
	for _, c := range d.CmdArgs {
		if len(c.Vals) == 0 {
			a.words = append(a.words, c.Key)
		} else {
			a.kv[c.Key] = strings.Join(c.Vals, ",")
		}
	}
	return a
}

func (a args) num(key string, or int64) int64 {
	v, ok := a.kv[key]
	if !ok {
		return or
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (a args) identity() Identity {
	return Identity{a.num("producer", NoProducerID), int16(a.num("epoch", int64(NoEpoch)))}
}

func parsePartitions(words []string) []TopicPartition {
	var out []TopicPartition
	for _, w := range words {
		i := strings.LastIndex(w, "-")
		n, err := strconv.ParseInt(w[i+1:], 10, 32)
		if err != nil {
			panic(err)
		}
		out = append(out, TopicPartition{w[:i], int32(n)})
	}
	return out
}

func (s *sim) command(a args) error {
	switch a.cmd {
	case "init":
		s.answer(s.init(a.words[0], int32(a.num("timeout", 60_000)), a.identity()))
	case "add":
		fmt.Fprintf(&s.out, "%s\n", name(s.add(a.words[0], a.identity(), int16(a.num("version", 2)), parsePartitions(a.words[1:]))))
	case "verify":
		s.verify(a)
	case "end":
		s.answer(s.end(a.words[0], a.identity(), a.words[1] == "commit", int16(a.num("version", 2))))
	case "marked", "give-up":
		return s.marked(a)
	case "advance":
		d, err := time.ParseDuration(a.words[0])
		s.advance(d)
		return err
	case "restart":
		return s.restart()
	case "level":
		s.level = int16(a.first())
	case "ids":
		s.noIDs = a.words[0] == "off"
	case "refuse":
		s.refuse = kerr.NotEnoughReplicas
	case "list":
		s.list(a)
	case "show":
		t := s.state.Txn(a.words[0])
		if t == nil {
			s.out.WriteString("none\n")
			return nil
		}
		fmt.Fprintf(&s.out, "%s, markers missing %s\n", describe(t), show(s.core.Unmarked(t)))
	case "epoch":
		n := *s.state.Txn(a.words[0])
		e, err := strconv.ParseInt(a.words[1], 10, 16)
		n.Epoch = int16(e)
		s.append([]Record{{ID: n.ID, Txn: &n, Version: 1}})
		return err
	default:
		return fmt.Errorf("no such command: %s", a.cmd)
	}
	return nil
}

func (a args) first() int64 {
	n, err := strconv.ParseInt(a.words[0], 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (s *sim) answer(is Identity, err *kerr.Error) {
	fmt.Fprintf(&s.out, "%s", name(err))
	if is != NoIdentity() {
		fmt.Fprintf(&s.out, " producer %d epoch %d", is.ProducerID, is.Epoch)
	}
	s.out.WriteString("\n")
}

// failed prefers an error of the log.
func failed(log, own *kerr.Error) *kerr.Error {
	if log != nil {
		return log
	}
	return own
}

func (s *sim) init(id string, timeoutMs int32, was Identity) (is Identity, err *kerr.Error) {
	wanted := false
	log := s.do(func(st Step) (r Result) {
		r, is, err = s.core.Init(st, id, timeoutMs, was)
		wanted = r.WantID
		return r
	})
	if wanted {
		return NoIdentity(), kerr.CoordinatorLoadInProgress
	}
	if err = failed(log, err); err != nil {
		is = NoIdentity()
	}
	return is, err
}

func (s *sim) add(id string, is Identity, version int16, ps []TopicPartition) (err *kerr.Error) {
	log := s.do(func(st Step) (r Result) {
		r, err = s.core.Add(st, id, is.ProducerID, is.Epoch, ps, version)
		return r
	})
	return failed(log, err)
}

func (s *sim) end(id string, was Identity, commit bool, version int16) (is Identity, err *kerr.Error) {
	wanted := false
	log := s.do(func(st Step) (r Result) {
		r, is, err = s.core.End(st, id, was, commit, version)
		wanted = r.WantID
		return r
	})
	if wanted {
		return NoIdentity(), kerr.CoordinatorLoadInProgress
	}
	if err = failed(log, err); err != nil {
		is = NoIdentity()
	}
	return is, err
}

func (s *sim) verify(a args) {
	ps, is := parsePartitions(a.words[1:]), a.identity()
	rows, err := s.core.Verify(s.step(), a.words[0], is.ProducerID, is.Epoch, ps)
	if err != nil {
		fmt.Fprintf(&s.out, "%s\n", err.Message)
	}
	for i, row := range rows {
		fmt.Fprintf(&s.out, "%s-%d %s\n", ps[i].Topic, ps[i].Partition, name(row))
	}
}

func (s *sim) marked(a args) error {
	e, ok := s.lastEnded(a.words[0])
	if !ok {
		return fmt.Errorf("no markers were sent for %s", a.words[0])
	}
	if a.cmd == "give-up" {
		s.core.GiveUp(e)
		return nil
	}
	if len(a.words) > 1 {
		e.Partitions = parsePartitions(a.words[1:])
	}
	s.do(func(st Step) Result { return s.core.Marked(st, e) })
	return nil
}

func (s *sim) list(a args) {
	f := Filter{LongerThanMs: a.num("longer", -1)}
	if v := a.kv["states"]; v != "" {
		f.States = strings.Split(v, ",")
	}
	if _, ok := a.kv["producers"]; ok {
		f.ProducerIDs = []int64{a.num("producers", 0)}
	}
	if len(a.words) > 0 {
		f.Match = func(id string) bool { return strings.HasPrefix(id, a.words[0]) }
	}
	for _, u := range f.UnknownStates() {
		fmt.Fprintf(&s.out, "unknown state %s\n", u)
	}
	for _, t := range s.core.List(s.step(), &f) {
		fmt.Fprintf(&s.out, "%s %d %v\n", t.ID, t.ProducerID, t.Status)
	}
	if o := s.state.Oldest(); o != nil {
		fmt.Fprintf(&s.out, "oldest open: %s\n", o.ID)
	}
}

// The epoch that is kept for fencing is the last there is.
func TestExhausted(t *testing.T) {
	for epoch, want := range map[int16]bool{0: false, math.MaxInt16 - 2: false, math.MaxInt16 - 1: true, math.MaxInt16: true} {
		if exhausted(epoch) != want {
			t.Errorf("epoch %d", epoch)
		}
	}
}
