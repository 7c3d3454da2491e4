package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The table is Kafka's list of keys: same names, types, defaults, valid values and dynamic flags.
func TestTableEqualsReference(t *testing.T) {
	text, err := os.ReadFile("testdata/configs.tsv")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[*Key]bool{}
	var scope Scope
	for i, line := range strings.Split(string(text), "\n") {
		switch {
		case strings.HasPrefix(line, "## server"):
			scope = ScopeBroker
		case strings.HasPrefix(line, "## topic"):
			scope = ScopeTopic
		case strings.HasPrefix(line, "## group"):
			scope = ScopeGroup
		}
		f := strings.Split(line, "\t")
		if len(f) < 4 {
			continue
		}
		k, ok := Lookup(scope, f[0])
		if !ok {
			t.Errorf("configs.tsv:%d: no %s key %s", i+1, scope, f[0])
			continue
		}
		seen[k] = true
		def := "null"
		if k.Required {
			def = "(required)"
		} else if k.Default != nil {
			def = *k.Default
		}
		want := strings.TrimPrefix(f[2], "class ")
		if k.Type.String() != f[1] || def != want || k.Valid != f[3] {
			t.Errorf("%s: have %s %q %q, Kafka has %s %q %q", k.Name, k.Type, def, k.Valid, f[1], want, f[3])
		}
		if scope == ScopeBroker && k.Dynamic != (f[4] == "dynamic") {
			t.Errorf("%s: dynamic is %v, Kafka says %s", k.Name, k.Dynamic, f[4])
		}
	}
	for _, scope := range []Scope{ScopeBroker, ScopeTopic, ScopeGroup} {
		for _, k := range Keys(scope) {
			if !seen[k] && !k.DynamicOnly && !strings.HasPrefix(k.Name, "weir.") {
				t.Errorf("%s key %s is not Kafka's and does not begin with weir.", scope, k.Name)
			}
		}
	}
}

func TestTableIsSound(t *testing.T) {
	for _, scope := range []Scope{ScopeBroker, ScopeTopic, ScopeGroup, ScopeClientMetrics} {
		for _, k := range Keys(scope) {
			if len(k.Doc) < 10 || !strings.HasSuffix(k.Doc, ".") || strings.Contains(k.Doc, "  ") {
				t.Errorf("%s: doc %q is not a sentence", k.Name, k.Doc)
			}
			if k.Default != nil {
				if _, f := k.parse(*k.Default); f != nil && !strings.HasPrefix(k.Name, "controller.quorum") {
					t.Errorf("%s: the default %q is not valid: %s", k.Name, *k.Default, f.reason)
				}
			}
			for _, s := range k.Synonyms {
				if _, ok := Lookup(ScopeBroker, s); !ok {
					t.Errorf("%s: synonym %s is no broker key", k.Name, s)
				}
			}
			if k.Honoured && k.ByDesign != "" {
				t.Errorf("%s is both honoured and without effect by design", k.Name)
			}
		}
	}
	for n := range honouredKeys() {
		if _, ok := Lookup(n.scope, n.name); !ok {
			t.Errorf("honoured.go lists %s, which is no %s key", n.name, n.scope)
		}
	}
	for n := range noEffectKeys() {
		_, broker := Lookup(ScopeBroker, n)
		if _, topic := Lookup(ScopeTopic, n); !broker && !topic {
			t.Errorf("honoured.go lists %s, which is no key", n)
		}
	}
	for _, m := range []map[string]string{zooKeeperKeys(), removedKeys()} {
		for n := range m {
			if _, ok := Lookup(ScopeBroker, n); ok {
				t.Errorf("retired.go lists %s, which is a key of today", n)
			}
		}
	}
}

func TestBaseKey(t *testing.T) {
	for _, c := range []struct{ name, key, listener string }{
		{"num.partitions", "num.partitions", ""},
		{"listener.name.plaintext.max.connections", "max.connections", "plaintext"},
		{"listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config", "sasl.jaas.config", "sasl_ssl"},
		{"listener.name.a.nope", "", ""},
		{"listener.name.a", "", ""},
		{"nope", "", ""},
	} {
		k, listener, ok := BaseKey(c.name)
		if ok != (c.key != "") || ok && (k.Name != c.key || listener != c.listener) {
			t.Errorf("BaseKey(%q) = %v, %q, %v", c.name, k, listener, ok)
		}
	}
}

// Every value that Kafka was asked about is accepted or refused alike, with the same text.
func TestValuesAsKafka(t *testing.T) {
	text, err := os.ReadFile("testdata/values.tsv")
	if err != nil {
		t.Fatal(err)
	}
	scopes := map[string]Scope{"broker": ScopeBroker, "topic": ScopeTopic, "group": ScopeGroup}
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		f := strings.SplitN(line, "\t", 5)
		k, ok := Lookup(scopes[f[0]], f[1])
		if !ok {
			t.Fatalf("values.tsv:%d: no key %s", i+1, f[1])
		}
		v, fault := k.parse(f[2])
		switch {
		case fault != nil && fault.repeated != "":
			if f[3] == "error" && !strings.Contains(f[4], "must not be duplicated") {
				t.Errorf("%s=%q: accepted with a repetition, Kafka: %s", k.Name, f[2], f[4])
			}
		case f[3] == "ok" && fault != nil:
			t.Errorf("%s=%q: refused (%s), Kafka accepts", k.Name, f[2], fault.kafka)
		case f[3] == "ok":
			if k.Type != TypePassword && v.text != f[4] {
				t.Errorf("%s=%q: have %q, Kafka %q", k.Name, f[2], v.text, f[4])
			}
		case fault == nil:
			// The order matters only for values with two faults: Kafka looks for repetitions first.
			t.Errorf("%s=%q: accepted, Kafka: %s", k.Name, f[2], f[4])
		case fault.kafka != f[4] && !strings.Contains(f[4], "must not be duplicated"):
			t.Errorf("%s=%q:\n have  %s\n Kafka %s", k.Name, f[2], fault.kafka, f[4])
		}
	}
}

func TestFormatJavaDouble(t *testing.T) {
	for in, want := range map[float64]string{0: "0.0", 0.5: "0.5", 1000: "1000.0", 1e7: "1.0E7", 1.5e-4: "1.5E-4", 0.001: "0.001", 1.7976931348623157e308: "1.7976931348623157E308"} {
		if got := formatJavaDouble(in); got != want {
			t.Errorf("%v: %s, Java writes %s", in, got, want)
		}
	}
}

func TestListOperations(t *testing.T) {
	for _, c := range []struct{ current, arg, appended, subtracted string }{
		{"delete", "compact", "delete,compact", "delete"},
		{"delete", "delete", "delete", ""},
		{"", "compact", "compact", ""},
		{"a,b,c", "c,b", "a,b,c", "a"},
		{"a", "", "a", "a"},
		{"", "", "", ""},
		{"delete,delete,compact", "delete", "delete,delete,compact", "delete,compact"}, // one at a time
		{"delete", " compact , delete", "delete,compact", ""},
		{"delete", "compact,,compact", "delete,compact,", "delete"}, // refused afterwards: an entry is empty
	} {
		if got := AppendList(c.current, c.arg); got != c.appended {
			t.Errorf("append %q to %q: %q, want %q", c.arg, c.current, got, c.appended)
		}
		if got := SubtractList(c.current, c.arg); got != c.subtracted {
			t.Errorf("subtract %q from %q: %q, want %q", c.arg, c.current, got, c.subtracted)
		}
	}
}

func TestAlterList(t *testing.T) {
	set := "compact"
	for _, c := range []struct {
		scope    Scope
		name     string
		current  *string
		subtract bool
		want     string
	}{
		{ScopeTopic, "cleanup.policy", nil, false, "delete,compact"}, // the default counts
		{ScopeTopic, "cleanup.policy", &set, true, ""},
		{ScopeTopic, "retention.ms", nil, false, "Can't APPEND to key retention.ms because its type is not LIST."},
		{ScopeTopic, "no.such", nil, true, "Can't SUBTRACT to key no.such because its type is not LIST."},
		{ScopeBroker, "no.such", nil, false, "Unknown config name: no.such"},
		{ScopeBroker, "message.max.bytes", nil, false, "Config value append is not allowed for config key: message.max.bytes"},
		{ScopeBroker, "message.max.bytes", nil, true, "Config value subtract is not allowed for config key: message.max.bytes"},
	} {
		got, err := AlterList(c.scope, c.name, c.current, "compact", c.subtract)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func FuzzValue(f *testing.F) {
	for _, s := range []string{"", "1", "-1", " 7 ", "abc", "1e3", "0x10", "compact,delete,", "1@[::1]:9093", "by_duration:PT1H", "1:2,3:4", "*"} {
		f.Add(s)
	}
	keys := slices.Concat(Keys(ScopeBroker), Keys(ScopeTopic), Keys(ScopeGroup))
	f.Fuzz(func(t *testing.T, s string) {
		for _, k := range keys {
			v, fault := k.parse(s)
			if fault != nil && fault.repeated == "" {
				continue
			}
			again, fault := k.parse(v.text) // what is shown can be set again
			if fault != nil || again.text != v.text {
				t.Fatalf("%s=%q is shown as %q, which is %v %q", k.Name, s, v.text, fault, again.text)
			}
		}
	})
}

// A key that is called honoured is read somewhere: by its own name, or as the default of a topic's key that is.
func TestHonouredKeysAreRead(t *testing.T) {
	var source strings.Builder
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch path {
		case "../config/honoured.go", "../config/synonyms.go", "../config/retired.go", "../config/check.go":
			return err // they only list keys
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		source.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) bool { return strings.Contains(source.String(), `"`+name+`"`) }
	byTopic := map[string]bool{}
	for _, k := range Keys(ScopeTopic) {
		for _, s := range k.Synonyms {
			byTopic[s] = k.Honoured
		}
	}
	for n := range honouredKeys() {
		if n.scope == ScopeBroker && !read(n.name) && !byTopic[n.name] {
			t.Errorf("honoured.go lists %s, which nothing reads", n.name)
		}
	}
}

func TestNotTaken(t *testing.T) {
	for name, want := range map[string]string{
		"max.connections": "", "no.such.key": "", "log.retention.ms": "",
		"listener.name.x.max.connections": "", "listener.name.x.connections.max.idle.ms": "single listener", "listeners": "", "num.recovery.threads.per.data.dir": "at start only", "num.io.threads": "goroutines",
		"log.cleaner.io.buffer.load.factor": "", "share.coordinator.threads": "goroutines", "transaction.two.phase.commit.enable": "not honour",
	} {
		if got := NotTaken(name); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
