// Package normal takes out of what a command-line tool prints what differs between two runs against one and the same
// system, so that the outputs of two systems can be compared. It replaces UUIDs, timestamps, ports, temporary paths, and
// broker and producer epochs, and nothing else: every other difference between two systems is one. Replica lists stay,
// the scenarios say where replicas are.
package normal

import (
	"maps"
	"regexp"
	"slices"
)

// Names are the ports, addresses and directories of one run, and what stands for them in the output.
type Names map[string]string

// replace prefers the longer text, since an address ends with a port, and takes no part of a number or name.
func (n Names) replace(output string) string {
	longestFirst := func(a, b string) int { return len(b) - len(a) }
	for _, text := range slices.SortedStableFunc(maps.Keys(n), longestFirst) {
		whole := regexp.QuoteMeta(text) + `\b`
		if text[0] != '/' {
			whole = `\b` + whole
		}
		output = regexp.MustCompile(whole).ReplaceAllLiteralString(output, n[text])
	}
	return output
}

var rules = []struct {
	find *regexp.Regexp
	put  string
}{
	// Timestamps: in front of a logger's line, of this century in milliseconds, and as an age.
	{regexp.MustCompile(`(?m)^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] `), ""},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[:,]\d{3}\b`), "TIME"},
	{regexp.MustCompile(`\b1[789]\d{11}\b`), "TIME"},
	{regexp.MustCompile(`\d+ ms ago *`), "N ms ago"},
	// Epochs of brokers and producers. The first is that of the finalized features, an offset of the metadata log as a
	// broker's is.
	{regexp.MustCompile(`Epoch: \d+`), "Epoch: N"},
	{regexp.MustCompile(`(?i)((?:broker|producer)[ _]?epoch"?[:= ] ?)\d+`), "${1}N"},
	// UUIDs, of Java.
	{regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "UUID"},
}

// ids are candidates for UUIDs of Kafka: 22 characters of base64, of which the last holds two bits.
var ids = regexp.MustCompile(`(^|[\s:="[(])([A-Za-z0-9_-]{21}[AQgw])\b`)

// random is what no word of 22 letters has, be it a class or a key: both cases, and a digit or two capitals in a row.
var random = regexp.MustCompile(`[a-z].*([0-9]|[A-Z]{2})|([0-9]|[A-Z]{2}).*[a-z]`)

// Text is the output without what differs between runs. The UUIDs in keep stay: they are the same in every run.
func Text(output string, names Names, keep ...string) string {
	output = names.replace(output)
	for _, r := range rules {
		output = r.find.ReplaceAllString(output, r.put)
	}
	return ids.ReplaceAllStringFunc(output, func(s string) string {
		if id := s[len(s)-22:]; random.MatchString(id) && !slices.Contains(keep, id) {
			return s[:len(s)-22] + "ID"
		}
		return s
	})
}
