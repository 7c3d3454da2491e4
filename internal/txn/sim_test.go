package txn

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// sim is one partition: a core, its state, and its log, which commits at once
// unless it is held.
type sim struct {
	config Config
	core   *Core
	state  *State
	bytes  []stored // the log
	level  int16
	now    time.Time
	nextID int64
	spare  int64       // a producer id for deadlines, -1 when there is none
	noIDs  bool        // the controller gives none
	refuse *kerr.Error // of the next append
	ended  []Ended     // markers that were sent
	out    strings.Builder
}

// stored is a record as it stands in the log.
type stored struct{ key, value []byte }

var simStart = time.UnixMilli(1_000_000_000_000)

func newSim() *sim {
	s := &sim{
		config: Config{MaxTimeout: 15 * time.Minute, AbortEvery: 10 * time.Second, Expiration: 7 * 24 * time.Hour, ExpireEvery: time.Hour},
		state:  NewState(), level: 2, now: simStart, nextID: 1000, spare: -1,
	}
	s.core = New(&s.config)
	return s
}

func (s *sim) step() Step { return Step{Now: s.now, State: s.state, Level: s.level, NewID: -1} }

// do runs one step as package coordinator/txns does: with a producer id when one
// is asked for. It tells whether its records are committed.
func (s *sim) do(f func(Step) Result) *kerr.Error {
	st := s.step()
	r := f(st)
	if r.WantID && len(r.Records) == 0 && !s.noIDs {
		st.NewID = s.nextID
		s.nextID++
		r = f(st)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&s.out, "note: %s\n", n)
	}
	if len(r.Records) > 0 {
		if err := s.refuse; err != nil {
			s.refuse = nil
			fmt.Fprintf(&s.out, "append refused: %s\n", err.Message)
			return err
		}
		s.append(r.Records)
	}
	for _, e := range r.Ended {
		s.core.Begin(s.step(), e)
		s.ended = append(s.ended, e)
		fmt.Fprintf(&s.out, "send markers of %s: producer %d epoch %d commit %v version %d to %s\n", e.ID, e.ProducerID, e.Epoch, e.Commit, e.Version, show(e.Partitions))
	}
	s.core.Committed(&r)
	return nil
}

func (s *sim) append(recs []Record) {
	for i := range recs {
		key, value := recs[i].Append(nil)
		s.bytes = append(s.bytes, stored{key, value})
		fmt.Fprintf(&s.out, "write %s\n", line(&recs[i]))
	}
	s.state = s.state.Apply(recs)
}

// advance lets time pass and meets every deadline.
func (s *sim) advance(d time.Duration) {
	end := s.now.Add(d)
	for {
		at := s.core.Next()
		if at.IsZero() || at.After(end) {
			break
		}
		if at.After(s.now) {
			s.now = at
		}
		s.do(s.due)
	}
	s.now = end
}

// due meets a deadline. A producer id that it lacks is there the next time.
func (s *sim) due(st Step) Result {
	st.NewID = s.spare
	r := s.core.Due(st)
	for _, rec := range r.Records {
		if rec.Txn != nil && rec.Txn.Next == s.spare {
			s.spare = -1
		}
	}
	if r.WantID && s.spare < 0 && !s.noIDs {
		s.spare = s.nextID
		s.nextID++
	}
	r.WantID = false
	return r
}

// restart is another node that takes the partition over: all it has is the log.
func (s *sim) restart() error {
	state, err := replay(s.bytes)
	if err != nil {
		return err
	}
	s.state, s.core = state, New(&s.config)
	s.ended = nil
	s.do(s.core.Activate)
	return nil
}

func replay(log []stored) (*State, error) {
	state := NewState()
	for _, b := range log {
		r, ok, err := ParseRecord(b.key, b.value)
		if err != nil || !ok {
			return nil, fmt.Errorf("record %x: %v %w", b.key, ok, err)
		}
		state = state.Apply([]Record{r})
	}
	return state, nil
}

func line(r *Record) string {
	if r.Txn == nil {
		return fmt.Sprintf("%s: gone", r.ID)
	}
	return describe(r.Txn) + fmt.Sprintf(" (v%d)", r.Version)
}

func describe(t *Txn) string {
	text := fmt.Sprintf("%s: %v producer %d epoch %d", t.ID, t.Status, t.ProducerID, t.Epoch)
	if t.LastEpoch != NoEpoch {
		text += fmt.Sprintf(" last %d", t.LastEpoch)
	}
	if t.Previous != t.ProducerID {
		text += fmt.Sprintf(" previous %d", t.Previous)
	}
	if t.Next != NoProducerID {
		text += fmt.Sprintf(" next %d", t.Next)
	}
	if t.StartMs >= 0 {
		text += fmt.Sprintf(" start +%v", time.UnixMilli(t.StartMs).Sub(simStart))
	}
	if len(t.Partitions) > 0 {
		text += " " + show(t.Partitions)
	}
	return text + fmt.Sprintf(" client %d", t.Version)
}

func show(ps []TopicPartition) string {
	var out []string
	for _, p := range ps {
		out = append(out, fmt.Sprintf("%s-%d", p.Topic, p.Partition))
	}
	return "[" + strings.Join(out, " ") + "]"
}

func name(err *kerr.Error) string {
	if err == nil {
		return "ok"
	}
	return err.Message
}

// lastEnded finds the markers that were sent last for an id.
func (s *sim) lastEnded(id string) (Ended, bool) {
	for _, e := range slices.Backward(s.ended) {
		if e.ID == id {
			return e, true
		}
	}
	return Ended{}, false
}
