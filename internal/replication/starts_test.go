package replication

import (
	"testing"

	"weir/internal/records"
)

func begun(next <-chan struct{}) bool {
	select {
	case <-next:
		return true
	default:
		return false
	}
}

// A follower's fetch is let go of when this broker begins to lead what the follower has a
// replica of, once for each leadership; for a second after that its fetches wait shortly.
func TestStarts(t *testing.T) {
	e := newEnv(t)
	e.o.Stepped = true // nobody copies
	e.register(2, 3)
	theirs, just := e.Starts(2)
	others, _ := e.Starts(3)
	if just || begun(theirs) {
		t.Fatal("before anything is led")
	}
	e.replay(topic("a", t1), part(t1, 0, 1, 3, dirA, 1, 2))
	if !begun(theirs) || begun(others) {
		t.Fatalf("after the first leadership: follower %t, another broker %t", begun(theirs), begun(others))
	}
	theirs, just = e.Starts(2)
	if !just || begun(theirs) {
		t.Fatalf("just %t, begun again %t", just, begun(theirs))
	}
	shrunk := records.NewPartitionChangeRecord()
	shrunk.TopicID, shrunk.PartitionID, shrunk.ISR = t1, 0, []int32{1}
	e.replay(&shrunk)
	if begun(theirs) {
		t.Fatal("a change of the ISR counts as a new leadership")
	}
	e.clock.Advance(startTime)
	if _, just = e.Starts(2); just {
		t.Fatal("the follower is still waited for")
	}
	e.replay(elect(t1, 0, 2))
	if begun(theirs) {
		t.Fatal("the end of a leadership counts as one")
	}
	e.replay(elect(t1, 0, 1))
	if !begun(theirs) {
		t.Fatal("the second leadership was not told of")
	}
}

// What is noted of a broker goes when it is registered no more, and lets go of its fetch.
func TestStartsForgetsBrokers(t *testing.T) {
	e := newEnv(t)
	e.o.Stepped = true
	e.register(2, 3)
	theirs, _ := e.Starts(3)
	gone := records.NewUnregisterBrokerRecord()
	gone.BrokerID = 3
	e.replay(&gone, topic("a", t1), part(t1, 0, 1, 3, dirA, 1, 2))
	if _, kept := e.starts.of[2]; !kept || len(e.starts.of) != 1 || !begun(theirs) {
		t.Fatalf("%v, begun %t", e.starts.of, begun(theirs))
	}
}

// register has brokers in the image.
func (e *env) register(ids ...int32) {
	e.t.Helper()
	for _, id := range ids {
		b := records.NewRegisterBrokerRecord()
		b.BrokerID, b.Fenced = id, false
		e.replay(&b)
	}
}
