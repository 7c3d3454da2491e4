package invariant

import "testing"

func TestCheck(t *testing.T) {
	Check(true, "fine")
	defer func() {
		if got := recover(); got != "BUG: offset 3 after 5" {
			t.Errorf("panicked with %v", got)
		}
	}()
	Check(false, "offset %d after %d", 3, 5)
}
