package consumer

import (
	"strings"
	"testing"
	"time"

	"weir/internal/image"
)

// What would take too much memory is refused before it does.
func TestRegexLimits(t *testing.T) {
	many := strings.Repeat("t", 300)
	for _, c := range []struct {
		name, text string
		want       string // of the answer, "" when the expression is accepted
	}{
		{"topics by name", strings.TrimSuffix(strings.Repeat(strings.Repeat("t", 249)+"|", 65), "|"), ""},
		{"too long", strings.Repeat("t", regexLimit+1), "SubscribedTopicRegex is not a valid regular expression: it is longer than 16384 bytes."},
		{"a repetition", "(?:topic){1000}", ""},
		{"a repetition of much", "(?:" + many + "){900}", "SubscribedTopicRegex `(?:" + many + "){900}` is not a valid regular expression: expression too large."},
		{"without an end", "(?:" + many + "){900,}", "SubscribedTopicRegex `(?:" + many + "){900,}` is not a valid regular expression: expression too large."},
		{"classes", `\pL{50}`, ""},
		{"large classes", `\pL{900}`, "SubscribedTopicRegex `\\pL{900}` is not a valid regular expression: expression too large."},
	} {
		_, err := compile(c.text)
		got := ""
		if err != nil {
			got = badRegex(c.text, err).Text
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	long := strings.Repeat("t", regexLimit+1)
	if found := ResolveIn(image.New(), time.UnixMilli(1), []string{long}); found[long] == nil || len(found[long].Topics) != 0 {
		t.Errorf("one that a record brought: %+v", found)
	}
}
