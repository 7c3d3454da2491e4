package config

import (
	"fmt"
	"slices"
	"strings"
)

// overridePlace stands for the file in errors about --override.
const overridePlace = "--override"

// Error is a setting that Weir refuses.
type Error struct {
	File    string // name of the properties file, or "--override"; empty when the fault is in no single line
	Line    int    // 0 when the fault is in no single line
	Key     string // empty for a fault in the combination of several keys
	Value   string
	Reason  string
	Allowed string // accepted values; empty when there is nothing to add to Reason
	Example string // a value that would be accepted

	cause error // what Reason was made of, nil: nothing else
}

// Unwrap returns what the reason was made of.
func (e *Error) Unwrap() error { return e.cause }

// Error returns one line, e.g.
//
//	server.properties:12: log.retention.hours=abc: not a number (INT); example: log.retention.hours=168
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(place(e.File, e.Line))
	if e.Key != "" {
		b.WriteString(oneLine(e.Key) + "=" + oneLine(e.Value) + ": ")
	}
	b.WriteString(strings.TrimSuffix(e.Reason, "."))
	if e.Allowed != "" {
		b.WriteString("; allowed: " + e.Allowed)
	}
	if e.Example != "" {
		b.WriteString("; example: " + e.Key + "=" + e.Example)
	}
	return printable(b.String())
}

// Warning is something the operator should know, but with which the node starts.
type Warning struct {
	File    string
	Line    int
	Key     string
	Message string
}

// String returns the line for the log.
func (w Warning) String() string { return place(w.File, w.Line) + w.Message }

func place(file string, line int) string {
	switch {
	case file == "":
		return ""
	case line == 0 || file == overridePlace:
		return file + ": "
	}
	return fmt.Sprintf("%s:%d: ", file, line)
}

// printable keeps a message on one line, whatever stands in the file.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}

// oneLine shortens a value for a message.
func oneLine(s string) string {
	const limit = 200
	s = printable(s)
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}

// Static is what server.properties and the overrides said, checked key by key. It is immutable.
type Static struct {
	resolved
	settings map[string]setting // by key, as written; with node.id and broker.id standing for each other
}

// Load reads the text of a properties file called name and the overrides ("key=value"), which win over the file.
// It checks every value by itself; Node checks how they fit together. The error is always an *Error, the first in
// order of the lines; the warnings come in that order too.
func Load(name string, text []byte, overrides []string) (*Static, []Warning, error) {
	inFile, err := parseProperties(name, string(text))
	if err != nil {
		return nil, nil, err
	}
	all := inFile
	for i, o := range overrides {
		key, value, ok := strings.Cut(o, "=")
		key = strings.TrimSpace(key)
		if !ok || key == "" {
			return nil, nil, &Error{File: overridePlace, Line: i + 1, Reason: fmt.Sprintf("%q is not of the form key=value", o)}
		}
		all = append(all, setting{key: key, value: strings.TrimSpace(value), file: overridePlace, line: i + 1})
	}
	l := loader{settings: map[string]setting{}}
	for _, s := range all {
		l.add(s)
	}
	for _, s := range l.lastWins(all) {
		if err := l.check(s); err != nil {
			return nil, l.warnings, err
		}
	}
	l.aliasIDs()
	s := &Static{settings: l.settings}
	s.resolved = resolve(func(key string) (string, bool) {
		set, ok := l.settings[key]
		return set.value, ok
	})
	return s, l.warnings, nil
}

type loader struct {
	settings map[string]setting
	warnings []Warning
}

func (l *loader) warn(s setting, format string, args ...any) {
	for i, a := range args { // a file may hold anything, and a log is for people
		if text, ok := a.(string); ok {
			args[i] = oneLine(text)
		}
	}
	l.warnings = append(l.warnings, Warning{File: s.file, Line: s.line, Key: s.key, Message: printable(fmt.Sprintf(format, args...))})
}

func (l *loader) add(s setting) {
	if first, ok := l.settings[s.key]; ok && first.file == s.file && first.value != s.value {
		l.warn(s, "%s is set twice, first in line %d; this one counts", s.key, first.line)
	}
	l.settings[s.key] = s
}

// lastWins keeps of every key the setting that counts, in the order written.
func (l *loader) lastWins(all []setting) []setting {
	return slices.DeleteFunc(slices.Clone(all), func(s setting) bool { return l.settings[s.key] != s })
}

func (l *loader) check(s setting) error {
	if instead, ok := zooKeeperKeys()[s.key]; ok {
		return &Error{File: s.file, Line: s.line, Key: s.key, Value: s.value, Reason: zooKeeperReason + instead}
	}
	if why, ok := removedKeys()[s.key]; ok {
		l.warn(s, "%s has no effect: %s", s.key, why)
		return nil
	}
	k, listener, ok := BaseKey(s.key)
	if !ok || k.DynamicOnly {
		l.unknown(s)
		return nil
	}
	_, f := k.parse(s.value)
	if f != nil && f.repeated == "" {
		e := &Error{File: s.file, Line: s.line, Key: s.key, Value: s.value, Reason: f.reason}
		if k.Sensitive {
			e.Value = "[hidden]"
		}
		e.Allowed, e.Example = k.allowed()
		return e
	}
	if f != nil {
		l.warn(s, "%s names %s more than once; it counts once", s.key, f.repeated)
	}
	switch {
	case k.ByDesign != "":
	case listener != "" && !honouredForListener(k):
		l.warn(s, "%s: Weir does not honour this setting of a single listener yet; it has no effect", s.key)
	case !k.Honoured && !k.isDefault(s.value):
		l.warn(s, "%s=%s: Weir does not honour this key yet; it has no effect", s.key, shown(k, s.value))
	}
	return nil
}

func (l *loader) unknown(s setting) {
	if near := nearest(s.key); near != "" {
		l.warn(s, "unknown key %s; did you mean %s?", s.key, near)
		return
	}
	l.warn(s, "unknown key %s; it has no effect", s.key)
}

// aliasIDs lets broker.id and node.id stand for each other, as Kafka does.
func (l *loader) aliasIDs() {
	for _, p := range [][2]string{{"node.id", "broker.id"}, {"broker.id", "node.id"}} {
		if s, ok := l.settings[p[0]]; ok {
			if _, ok := l.settings[p[1]]; !ok {
				s.key = p[1]
				l.settings[p[1]] = s
			}
		}
	}
}

func shown(k *Key, value string) string {
	if k.Sensitive {
		return "[hidden]"
	}
	return oneLine(value)
}

// isDefault tells whether the text means the key's default.
func (k *Key) isDefault(text string) bool {
	if k.Default == nil {
		return false
	}
	v, f := k.parseType(text)
	return f == nil && v.text == k.defaultValue().text
}

// allowed describes what the key accepts, for the end of an error.
func (k *Key) allowed() (allowed, example string) {
	allowed = k.Valid
	if low, ok := strings.CutSuffix(allowed, ",...]"); ok {
		allowed = strings.TrimPrefix(low, "[") + " or more"
	}
	if k.Default != nil && *k.Default != "" {
		example = *k.Default
	}
	switch k.Name {
	case "node.id", "broker.id":
		example = "1"
	case "process.roles":
		example = "broker,controller"
	case "controller.listener.names":
		example = "CONTROLLER"
	case "controller.quorum.voters":
		return "", "1@host1:9093,2@host2:9093,3@host3:9093"
	case "controller.quorum.bootstrap.servers":
		return "", "host1:9093,host2:9093,host3:9093"
	}
	return allowed, example
}

// nearest returns the known broker key with the smallest edit distance, when it is close enough to be meant.
func nearest(name string) string {
	best, bestDistance := "", 1+max(1, min(len(name)/5, 4))
	for _, k := range Keys(ScopeBroker) {
		if k.Internal || k.DynamicOnly {
			continue
		}
		if d := editDistance(name, k.Name, bestDistance); d < bestDistance {
			best, bestDistance = k.Name, d
		}
	}
	if best == "" {
		// A topic's key in the broker's file: name the broker's one.
		if k, ok := Lookup(ScopeTopic, name); ok && len(k.Synonyms) > 0 {
			return k.Synonyms[0]
		}
	}
	return best
}

// editDistance is Levenshtein's, except that it may return any number ≥ limit once the limit is reached.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost = 1 + min(diagonal, row[j], row[j-1])
			}
			diagonal, row[j] = row[j], cost
		}
	}
	return row[len(b)]
}
