package hashorder

import "testing"

func TestString(t *testing.T) {
	for text, want := range map[string]int32{"": 0, "g1": 3242, "polygenelubricants": -1 << 31, "😀": 1772899} {
		if got := String(text); got != want {
			t.Errorf("hash of %q is %d, want %d", text, got, want)
		}
	}
}
