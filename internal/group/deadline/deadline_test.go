package deadline

import (
	"slices"
	"testing"
	"time"
)

func TestQueue(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var q Queue[string]
	if !q.Next().IsZero() || q.Len() != 0 {
		t.Fatal("an empty queue has a deadline")
	}
	q.Set("a", at(5))
	q.Set("b", at(3))
	q.Set("c", at(3))
	q.Set("d", at(1))
	q.Set("a", at(2)) // replaces
	q.Cancel("d")
	q.Cancel("unknown")
	if got, ok := q.Get("a"); !ok || !got.Equal(at(2)) {
		t.Fatalf("a is due at %v, %v", got, ok)
	}
	if _, ok := q.Pop(at(1)); ok {
		t.Fatal("popped before its time")
	}
	if !q.Next().Equal(at(2)) {
		t.Fatalf("next %v", q.Next())
	}
	var got []string
	for {
		k, ok := q.Pop(at(9))
		if !ok {
			break
		}
		got = append(got, k)
	}
	if want := []string{"a", "b", "c"}; !slices.Equal(got, want) {
		t.Fatalf("popped %v, want %v", got, want)
	}
	if q.Len() != 0 || len(q.byKey) != 0 {
		t.Fatal("entries are left")
	}
}
