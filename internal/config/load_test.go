package config

import (
	"bytes"
	"strings"
	"testing"
)

// Each line end, separator, escape and continuation of Java's Properties.load. The expected pairs were compared with
// java.util.Properties; for a key written twice every setting is kept here, the last wins later.
func TestParseProperties(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"a=1\nb:2\nc 3\nd\t4\ne = 5\nf : 6\ng   7\n", "a=1|b=2|c=3|d=4|e=5|f=6|g=7"},
		{"# x=1\n! y=2\n  # z=3\n\n \t\f\na=1", "a=1"},
		{"a=1\r\nb=2\rc=3", "a=1|b=2|c=3"},
		{"  a=1  ", "a=1  "},
		{"a==b\nc:=d\ne= =f", "a==b|c==d|e==f"},
		{"a\nb=\nc:", "a=|b=|c="},
		{"a=1,\\\n   2,\\\n\t3\nb=4", "a=1,2,3|b=4"},
		{"a=1\\\\\nb=2", `a=1\|b=2`},
		{"a=1\\\\\\\nb=2", `a=1\b=2`},
		{"a=1\\", "a=1"},
		{"a=x\\\n# no comment\nb=1", "a=x# no comment|b=1"},
		{"a=x\\\n\nb=1", "a=x|b=1"},
		{"a\\ b=1\na\\=b=2\na\\:b=3", "a b=1|a=b=2|a:b=3"},
		{`a=\u0041\u00e9\u20AC`, "a=Aé€"},
		{`a=\ud83d\ude00`, "a=😀"},
		{`a=\t\n\r\f\q\z`, "a=\t\n\r\fqz"},
		{`\u0061=1`, "a=1"},
		{"a=é", "a=é"},
		{"a=\xe9", "a=é"}, // ISO 8859-1
		{"\ufeffa=1", "a=1"},
		{"a=1\na=2", "a=1|a=2"},
		{"\\\na=1", "a=1"},
		{"=1", "=1"},
	} {
		got, err := parseProperties("f", c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		var parts []string
		for _, s := range got {
			parts = append(parts, s.key+"="+s.value)
		}
		if g := strings.Join(parts, "|"); g != c.want {
			t.Errorf("%q: %q, want %q", c.text, g, c.want)
		}
	}
}

// What an operator reads about a bad line: place, key, value, what is wrong, what is allowed.
func TestLoadErrors(t *testing.T) {
	for _, c := range []struct {
		text, override string
		want           string
	}{
		{"\n\nlog.retention.hours=abc", "", "server.properties:3: log.retention.hours=abc: not a number (INT); example: log.retention.hours=168"},
		{"num.partitions=0", "", "server.properties:1: num.partitions=0: must be at least 1; allowed: 1 or more; example: num.partitions=1"},
		{"compression.type=zip", "", `server.properties:1: compression.type=zip: "zip" is not allowed; allowed: [uncompressed, zstd, lz4, snappy, gzip, producer]; example: compression.type=producer`},
		{"auto.create.topics.enable=yes", "", "server.properties:1: auto.create.topics.enable=yes: neither true nor false (BOOLEAN); example: auto.create.topics.enable=true"},
		{"a=1\\\n2\nnum.partitions=x", "", "server.properties:3: num.partitions=x: not a number (INT); allowed: 1 or more; example: num.partitions=1"},
		{"num.partitions=3", "num.partitions=many", "--override: num.partitions=many: not a number (INT); allowed: 1 or more; example: num.partitions=1"},
		{"num.partitions=x", "num.partitions=3", ""}, // the override counts
		{"", "num.partitions", `--override: "num.partitions" is not of the form key=value`},
		{"a=\\u12", "", `server.properties:1: a=\u12: \u must be followed by four hexadecimal digits`},
		{"zookeeper.connect=localhost:2181", "", "server.properties:1: zookeeper.connect=localhost:2181: Weir keeps its metadata in a KRaft quorum and knows no ZooKeeper; write process.roles=broker,controller, node.id=1, listeners=PLAINTEXT://:9092,CONTROLLER://:9093, controller.listener.names=CONTROLLER and controller.quorum.bootstrap.servers=localhost:9093 instead, and format the directories with `weir storage format`"},
		{"zookeeper.session.timeout.ms=1", "", "server.properties:1: zookeeper.session.timeout.ms=1: Weir keeps its metadata in a KRaft quorum and knows no ZooKeeper; remove the line"},
	} {
		var overrides []string
		if c.override != "" {
			overrides = []string{c.override}
		}
		got := ""
		if _, _, err := Load("server.properties", []byte(c.text), overrides); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q %q:\n have %s\n want %s", c.text, c.override, got, c.want)
		}
	}
}

// Unknown, removed, repeated and not yet honoured keys are each answered with one warning.
func TestLoadWarnings(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"num.partitons=3", "f:1: unknown key num.partitons; did you mean num.partitions?"},
		{"retention.ms=3", "f:1: unknown key retention.ms; did you mean log.retention.ms?"},
		{"my.own.plugin.key=3", "f:1: unknown key my.own.plugin.key; it has no effect"},
		{"log.retention.hours=1\nlog.retention.hours=2", "f:2: log.retention.hours is set twice, first in line 1; this one counts"},
		{"log.retention.hours=1\nlog.retention.hours=1", ""},
		{"inter.broker.protocol.version=3.9", "f:1: inter.broker.protocol.version has no effect: the finalized metadata.version rules what nodes speak; raise it with `weir features upgrade`"},
		{"log.message.format.version=2.0", "f:1: log.message.format.version has no effect: records are always stored in the newest format (message format v2)"},
		{"authorizer.class.name=x.Y", "f:1: authorizer.class.name=x.Y: Weir does not honour this key yet; it has no effect"},
		{"ssl.key.password=secret", "f:1: ssl.key.password=[hidden]: Weir does not honour this key yet; it has no effect"},
		{"log.cleaner.enable=true", ""}, // the default: nothing is lost
		{"num.io.threads=16", ""},       // nothing to act on, by design
		{"num.partitions=3", ""},
		{"log.dirs=/a,/b,/a", "f:1: log.dirs names /a more than once; it counts once"},
		{"listener.name.plaintext.max.connections=3", ""},
		{"listener.name.plaintext.connections.max.idle.ms=3", "f:1: listener.name.plaintext.connections.max.idle.ms: Weir does not honour this setting of a single listener yet; it has no effect"},
	} {
		_, warnings, err := Load("f", []byte(c.text), nil)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
		}
		var lines []string
		for _, w := range warnings {
			lines = append(lines, w.String())
		}
		if got := strings.Join(lines, "\n"); got != c.want {
			t.Errorf("%q:\n have %s\n want %s", c.text, got, c.want)
		}
	}
}

func TestStaticGetters(t *testing.T) {
	s, _, err := Load("f", []byte("node.id=3\nlog.dirs=/a, /b\nlog.cleaner.min.cleanable.ratio=0.25"), []string{"num.partitions=7"})
	if err != nil {
		t.Fatal(err)
	}
	if s.Int("broker.id") != 3 || s.Int("num.partitions") != 7 || s.Long("log.flush.interval.messages") != 9223372036854775807 ||
		!s.Bool("auto.create.topics.enable") || s.Double("log.cleaner.min.cleanable.ratio") != 0.25 ||
		strings.Join(s.List("log.dirs"), "|") != "/a|/b" || s.String("compression.type") != "producer" ||
		!s.Null("broker.rack") || s.Int("offsets.topic.replication.factor") != 3 {
		t.Error("a getter lies")
	}
	if raw, ok := s.Raw("log.dirs"); !ok || raw != "/a, /b" {
		t.Errorf("Raw: %q %v", raw, ok)
	}
	if _, ok := s.Raw("num.io.threads"); ok {
		t.Error("Raw of a key that is not set")
	}
}

func TestOwnKeysAndProtocols(t *testing.T) {
	const base = "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://:9092,CONTROLLER://:9093\n" +
		"controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@localhost:9093\n"
	for _, c := range []struct{ add, metrics, err string }{
		{"", "", ""},
		{"weir.metrics.listener=127.0.0.1:9404", "127.0.0.1:9404", ""},
		{"weir.metrics.listener=[::1]:9404", "[::1]:9404", ""},
		{"weir.metrics.listener=:9404", ":9404", ""},
		{"weir.metrics.listener=9404", "", "f:6: weir.metrics.listener=9404: not of the form host:port; example: weir.metrics.listener=127.0.0.1:9404"},
		{"listeners=SSL://:9092,CONTROLLER://:9093\nlistener.security.protocol.map=SSL:SSL,CONTROLLER:PLAINTEXT\ninter.broker.listener.name=SSL", "",
			"f:6: listeners=SSL://:9092,CONTROLLER://:9093: listener SSL uses the security protocol SSL, which Weir does not serve yet; map it to PLAINTEXT in listener.security.protocol.map"},
	} {
		s, _, err := Load("f", []byte(base+c.add), nil)
		if err != nil {
			t.Fatal(err)
		}
		n, err := s.Node()
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.err {
			t.Errorf("%s:\n have %s\n want %s", c.add, got, c.err)
			continue
		}
		if err == nil && (n.MetricsListener == nil) != (c.metrics == "") || n != nil && n.MetricsListener != nil && n.MetricsListener.String() != c.metrics {
			t.Errorf("%s: metrics listener %v", c.add, n.MetricsListener)
		}
		if err == nil && (len(n.DataListeners()) != 1 || len(n.ControllerAddresses) != 1 || n.ControllerAddresses[0].Port != 9093) {
			t.Errorf("%s: data %v, controller %v", c.add, n.DataListeners(), n.ControllerAddresses)
		}
	}
}

func TestParseISODuration(t *testing.T) {
	for in, want := range map[string]float64{"PT1H": 3600, "P1DT2H3M4.5S": 93784.5, "-PT1H": -3600, "pt1m": 60, "PT-1.5S": -1.5} {
		if d, ok := ParseISODuration(in); !ok || d.Seconds() != want {
			t.Errorf("%s: %v %v", in, d, ok)
		}
	}
	for _, in := range []string{"", "P", "PT", "1H", "P1H", "PT1D", "PT1.5H", "PT1M1H", "P99999999999D", "P1DT"} {
		if d, ok := ParseISODuration(in); ok {
			t.Errorf("%s: accepted as %v", in, d)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte("node.id=1\nprocess.roles=broker\nlisteners=PLAINTEXT://[::1]:9092\ncontroller.listener.names=C\ncontroller.quorum.bootstrap.servers=h:1"))
	f.Add([]byte("a=\\u00e9\\\n  b\\\\\n\\\n"))
	f.Add([]byte("\xff\xfe=\\ud83d\\ude00\nlog.dirs=/a,,\nadvertised.listeners=A://:99999999999999999999"))
	f.Add([]byte("listener.name.x.ssl.key.password=s\nmax.connections.per.ip.overrides=h:1,[::1]:2"))
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		s, warnings, err := Load("f", text, nil)
		if !bytes.Equal(before, text) {
			t.Fatal("the text was modified")
		}
		for _, w := range warnings {
			if strings.ContainsAny(w.String(), "\n\r") {
				t.Fatalf("a warning of several lines: %q", w)
			}
		}
		if err == nil {
			_, err = s.Node()
			NewEffective(s, nil, nil).DescribeBroker()
		}
		if err == nil {
			return
		}
		e, ok := AsError(err)
		if !ok || strings.ContainsAny(e.Error(), "\n\r") {
			t.Fatalf("error %T %q", err, err)
		}
	})
}

func TestConnectionOverrides(t *testing.T) {
	for text, want := range map[string]map[string]int{
		"": {}, "10.0.0.1:5, host:0": {"10.0.0.1": 5, "host": 0}, "[::1]:7": {"::1": 7},
		"host": nil, "host:x": nil, "host:-1": nil, "host:99999999999": nil,
	} {
		got, err := parseConnectionOverrides(text)
		if (err == nil) != (want != nil) || len(got) != len(want) && err == nil {
			t.Errorf("%q: %v, %v", text, got, err)
			continue
		}
		for host, n := range want {
			if got[host] != n {
				t.Errorf("%q: %v", text, got)
			}
		}
	}
	s, _, err := Load("f", []byte("max.connections.per.ip.overrides=a:1,b:2"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if m := s.ConnectionOverrides(); len(m) != 2 || m["b"] != 2 {
		t.Errorf("overrides: %v", m)
	}
}
