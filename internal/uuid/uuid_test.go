package uuid

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"weir/internal/rng"
)

func TestText(t *testing.T) {
	for _, c := range []struct {
		u    UUID
		text string
	}{
		{Zero, "AAAAAAAAAAAAAAAAAAAAAA"},
		{MetadataTopic, "AAAAAAAAAAAAAAAAAAAAAQ"},
		{DirMigrating, "AAAAAAAAAAAAAAAAAAAAAA"},
		{DirUnassigned, "AAAAAAAAAAAAAAAAAAAAAQ"},
		{DirLost, "AAAAAAAAAAAAAAAAAAAAAg"},
		{UUID{0xfb, 0xff, 15: 0x01}, "-_8AAAAAAAAAAAAAAAAAAQ"},
	} {
		if got := c.u.String(); got != c.text {
			t.Errorf("%x.String() = %q, want %q", c.u, got, c.text)
		}
		for _, text := range []string{c.text, c.text + "=="} {
			if got, err := Parse(text); err != nil || got != c.u {
				t.Errorf("Parse(%q) = %x, %v, want %x", text, got, err, c.u)
			}
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, s := range []string{
		"", "A", strings.Repeat("A", 21), strings.Repeat("A", 23), strings.Repeat("A", 25),
		strings.Repeat("A", 21) + "+", strings.Repeat("A", 21) + "/", strings.Repeat("A", 21) + "\n",
		"\n" + strings.Repeat("A", 21), strings.Repeat("A", 23) + "=", strings.Repeat("A", 24),
	} {
		if u, err := Parse(s); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", s, u)
		}
	}
}

func TestJSON(t *testing.T) {
	in := struct{ ID UUID }{MetadataTopic}
	b, err := json.Marshal(in)
	if err != nil || string(b) != `{"ID":"AAAAAAAAAAAAAAAAAAAAAQ"}` {
		t.Fatalf("Marshal: %s, %v", b, err)
	}
	out := in
	out.ID = Zero
	if err := json.Unmarshal(b, &out); err != nil || out != in {
		t.Fatalf("Unmarshal: %v, %v", out, err)
	}
	if err := json.Unmarshal([]byte(`{"ID":"no"}`), &out); err == nil {
		t.Error("Unmarshal took a bad id")
	}
}

func TestRandom(t *testing.T) {
	r := rng.New(1)
	seen := map[UUID]bool{}
	for range 20000 {
		u := Random(r)
		if u.Reserved() || strings.HasPrefix(u.String(), "-") || u[6]>>4 != 4 || u[8]>>6 != 2 {
			t.Fatalf("Random gave %v (%x)", u, u)
		}
		if seen[u] {
			t.Fatalf("Random gave %v twice", u)
		}
		seen[u] = true
	}
	// The dice 0xf8… would start with '-': they are thrown again.
	dice := append(bytes.Repeat([]byte{0xf8}, 16), bytes.Repeat([]byte{1}, 16)...)
	if u := Random(bytes.NewReader(dice)); u[0] != 1 {
		t.Errorf("Random kept %v", u)
	}
	defer func() {
		if recover() == nil {
			t.Error("Random went on without dice")
		}
	}()
	Random(bytes.NewReader(nil))
}

func TestReserved(t *testing.T) {
	for low, want := range map[byte]bool{0: true, 99: true, 100: false} {
		if got := (UUID{15: low}).Reserved(); got != want {
			t.Errorf("Reserved(%d) = %v", low, got)
		}
	}
	if (UUID{0: 1}).Reserved() {
		t.Error("a high byte is reserved")
	}
}

func TestCompare(t *testing.T) {
	a, b := UUID{0: 1, 15: 9}, UUID{0: 0x80}
	if a.Compare(b) != -1 || b.Compare(a) != 1 || a.Compare(a) != 0 {
		t.Errorf("Compare: %d %d %d", a.Compare(b), b.Compare(a), a.Compare(a))
	}
}
