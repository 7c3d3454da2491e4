package quorum

import (
	"slices"
	"strings"
	"testing"

	"weir/internal/kraft"
)

// TestBookBelievesAddresses: what peers say of others is checked, and bounded.
func TestBookBelievesAddresses(t *testing.T) {
	b := NewBook("C", []kraft.Voter{{Replica: kraft.Replica{ID: 1}, Endpoints: []kraft.Endpoint{{Name: "C", Host: "one", Port: 1}}}})
	set, err := kraft.NewVoterSet([]kraft.Voter{{Replica: kraft.Replica{ID: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	b.voters = func() kraft.VoterSet { return set }
	say := func(id int32, host string, port uint16) {
		b.Learn(id, []kraft.Endpoint{{Name: "OTHER", Host: "other", Port: 7}, {Name: "C", Host: host, Port: port}})
	}
	for _, host := range []string{"", "0.0.0.0", "::", "224.0.0.1", "a b", "a/b", "u@h", "h:1", "[::1]", "x\x00", strings.Repeat("x", 256)} {
		if say(5, host, 9); len(b.Addresses(5)) > 0 {
			t.Errorf("believes the host %q", host)
		}
	}
	say(5, "h", 0)
	say(-1, "h", 1)
	if got := slices.Concat(b.Addresses(5), b.Addresses(-1)); len(got) > 0 {
		t.Errorf("believes %q", got)
	}
	for host, want := range map[string]string{"10.0.0.5": "10.0.0.5:9", "fe80::1%eth0": "[fe80::1%eth0]:9", "n-5.example_x.org": "n-5.example_x.org:9"} {
		if say(5, host, 9); !slices.Equal(b.Addresses(5), []string{want}) {
			t.Errorf("%s: %q", host, b.Addresses(5))
		}
	}

	say(1, "uno", 1)
	say(2, "due", 2)
	for id := range int32(1000) {
		say(100+id, "h", 1)
		b.Answered(100 + id)
		b.Answered(5000 + id)
	}
	if len(b.learned) > 2+maxStrangers || len(b.answered) > maxStrangers || len(b.strangers) > maxStrangers {
		t.Errorf("keeps %d addresses, %d answered", len(b.learned), len(b.answered))
	}
	if got := slices.Concat(b.Addresses(1), b.Addresses(2)); !slices.Equal(got, []string{"uno:1", "one:1", "due:2"}) {
		t.Errorf("of the voters it keeps %q", got)
	}
}
