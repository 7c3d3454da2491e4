package storage

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/metalog"
	"weir/internal/rng"
	"weir/internal/uuid"
	"weir/internal/vfs"
	"weir/internal/vfs/memfs"
)

const cluster = "4L6g3nShT-eMCtK--X86sw"

const staticConfig = `process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093
log.dirs=/x/a,/x/b
`

// host is a machine with the file s.properties (static voters), d.properties (dynamic ones) and b.properties (a broker).
type host struct {
	t   *testing.T
	fs  *memfs.FS
	rng *rng.Source
}

func newHost(t *testing.T) *host {
	h := &host{t, memfs.New(), rng.New(1)}
	h.write("/s.properties", staticConfig+"controller.quorum.voters=1@127.0.0.1:19093\n")
	h.write("/d.properties", staticConfig+"controller.quorum.bootstrap.servers=127.0.0.1:19093\n")
	h.write("/b.properties", strings.NewReplacer("broker,controller", "broker", ",CONTROLLER://127.0.0.1:19093", "").Replace(staticConfig)+
		"controller.quorum.bootstrap.servers=127.0.0.1:19093\n")
	return h
}

func (h *host) write(name, text string) {
	h.t.Helper()
	if err := vfs.WriteFileAtomic(h.fs, name, []byte(text)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) remove(names ...string) {
	h.t.Helper()
	for _, n := range names {
		if err := h.fs.RemoveAll(n); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *host) run(args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	code = Run(Env{Name: "kafka-storage", FS: h.fs, Now: func() time.Time { return time.UnixMilli(1_700_000_000_000) }, Rand: h.rng,
		Stdout: &stdout, Stderr: &stderr}, args)
	return code, stdout.String(), stderr.String()
}

// line splits a command line at blanks; # stands for the cluster id.
func line(s string) []string { return strings.Fields(strings.ReplaceAll(s, "#", cluster)) }

// The texts are those that kafka-storage of Apache Kafka 4.3.1 prints.
func TestOutput(t *testing.T) {
	const mapping43 = "metadata.version=30 (4.3-IV0)\nkraft.version=1\ntransaction.version=2\ngroup.version=1\neligible.leader.replicas.version=1\nshare.version=1\nstreams.version=1\n"
	for _, c := range []struct {
		args, out string
	}{
		{"version-mapping", mapping43},
		{"version-mapping -r 4.3-IV0", mapping43},
		{"version-mapping --release-version=4.2-IV0", "metadata.version=28 (4.2-IV0)\nkraft.version=1\ntransaction.version=2\ngroup.version=1\neligible.leader.replicas.version=1\nshare.version=1\nstreams.version=0\n"},
		{"version-mapping -r4.1", "metadata.version=27 (4.1)\nkraft.version=1\ntransaction.version=2\ngroup.version=1\neligible.leader.replicas.version=1\nshare.version=0\nstreams.version=0\n"},
		{"version-mapping -r 4.0-IV2", "metadata.version=24 (4.0-IV2)\nkraft.version=1\ntransaction.version=2\ngroup.version=1\neligible.leader.replicas.version=0\nshare.version=0\nstreams.version=0\n"},
		{"version-mapping -r 3.9.2", "metadata.version=21 (3.9.2)\nkraft.version=1\ntransaction.version=0\ngroup.version=0\neligible.leader.replicas.version=0\nshare.version=0\nstreams.version=0\n"},
		{"version-mapping -r 3.8-IV0", "metadata.version=20 (3.8-IV0)\nkraft.version=0\ntransaction.version=0\ngroup.version=0\neligible.leader.replicas.version=0\nshare.version=0\nstreams.version=0\n"},
		{"feature-dependencies -f transaction.version=2 -f group.version=1", "transaction.version=2 has no dependencies.\ngroup.version=1 has no dependencies.\n"},
		{"feature-dependencies -f eligible.leader.replicas.version=1", "eligible.leader.replicas.version=1 requires:\n    metadata.version=23 (4.0-IV1)\n"},
		{"feature-dependencies -f metadata.version=29", "metadata.version=29 (4.2-IV1) has no dependencies.\n"},
	} {
		if code, out, errs := newHost(t).run(line(c.args)...); code != 0 || out != c.out || errs != "" {
			t.Errorf("%s: exit %d\n%s%s", c.args, code, out, errs)
		}
	}
}

func TestRefusals(t *testing.T) {
	const formatUsage = "usage: kafka-storage format [-h] --config CONFIG --cluster-id CLUSTER_ID [--add-scram ADD_SCRAM] [--ignore-formatted] [--release-version RELEASE_VERSION] [--feature FEATURE] [--standalone | --no-initial-controllers | --initial-controllers INITIAL_CONTROLLERS]\nkafka-storage: error: "
	const top = "usage: kafka-storage [-h] {info,format,version-mapping,feature-dependencies,random-uuid} ...\nkafka-storage: error: "
	for _, c := range []struct {
		args, want string
	}{
		{"", top + "too few arguments\n"},
		{"bogus", top + "invalid choice: 'bogus' (choose from 'info', 'format', 'version-mapping', 'feature-dependencies', 'random-uuid')\n"},
		{"format", formatUsage + "argument --config/-c is required\n"},
		{"format -c x", formatUsage + "argument --cluster-id/-t is required\n"},
		{"format -c /d.properties -t # -s -N", formatUsage + "argument --no-initial-controllers/-N: not allowed with argument --standalone/-s\n"},
		{"format -c /d.properties -t # -r", formatUsage + "argument --release-version/-r: expected one argument\n"},
		{"format -c /d.properties -gt # --unknown", formatUsage + "unrecognized arguments: '--unknown'\n"},
		{"format -c /d.properties -t # extra", formatUsage + "unrecognized arguments: 'extra'\n"},
		{"random-uuid x", "usage: kafka-storage random-uuid [-h]\nkafka-storage: error: unrecognized arguments: 'x'\n"},
		{"info", "usage: kafka-storage info [-h] --config CONFIG\nkafka-storage: error: argument --config/-c is required\n"},
		{"feature-dependencies", "usage: kafka-storage feature-dependencies [-h] --feature FEATURE\nkafka-storage: error: argument --feature/-f is required\n"},
		{"feature-dependencies -f group.version", "Invalid feature format: group.version. Expected format: 'feature=version' (e.g. 'group.version=1')\n"},
		{"feature-dependencies -f group.version=x", "Invalid version format: x for feature group.version\n"},
		{"feature-dependencies -f group.version=5", "Feature level 5 is not supported for feature group.version\n"},
		{"feature-dependencies -f foo.version=1", "Unknown feature: foo.version\n"},
		{"feature-dependencies -f metadata.version=99", "Unknown metadata.version 99\n"},
		{"version-mapping -r bogus", "Unknown metadata.version 'bogus'. Supported metadata.version are: 3.3-IV3, 3.4-IV0, 3.5-IV0, 3.5-IV1, 3.5-IV2, 3.6-IV0, 3.6-IV1, 3.6-IV2, 3.7-IV0, 3.7-IV1, 3.7-IV2, 3.7-IV3, 3.7-IV4, 3.8-IV0, 3.9-IV0, 4.0-IV0, 4.0-IV1, 4.0-IV2, 4.0-IV3, 4.1-IV0, 4.1-IV1, 4.2-IV0, 4.2-IV1, 4.3-IV0, 4.4-IV0\n"},
		{"format -c /d.properties -t #", "Because controller.quorum.voters is not set on this controller, you must specify one of the following: --standalone, --initial-controllers, or --no-initial-controllers.\n"},
		{"format -c /b.properties -t # -s", "You can only use --standalone on a controller.\n"},
		{"format -c /s.properties -t # -f group.version", "Can't parse feature=level string group.version: equals sign not found.\n"},
		{"format -c /s.properties -t # -f group.version=x", "Can't parse feature=level string group.version=x: unable to parse x as a short.\n"},
		{"format -c /s.properties -t # -S SCRAM-SHA-256=[name=alice]", "You must supply one of 'password' or 'saltedpassword' to add-scram\n"},
		{"format -c /d.properties -t # --initial 1@localhost", "No colon following hostname could be found.: \"1@localhost\"\n"},
		{"format -c /missing -t #", "open /missing: no such file or directory\n"},
		{"format --ignore-formatted=yes -c /s.properties -t #", formatUsage + "argument --ignore-formatted/-g: ignored explicit argument yes\n"},
		{"format --i -c /s.properties", formatUsage + "ambiguous option: --i could match --ignore-formatted, --initial-controllers\n"},
	} {
		h := newHost(t)
		code, out, errs := h.run(line(c.args)...)
		if code != 1 || out != "" || errs != c.want {
			t.Errorf("%s: exit %d\n%s%s", c.args, code, out, errs)
		}
		if there, err := vfs.Exists(h.fs, "/x"); there || err != nil {
			t.Errorf("%s: something was written", c.args)
		}
	}
}

func TestFormatAndInfo(t *testing.T) {
	h := newHost(t)
	expect := func(args string, code int, out, errs string) {
		t.Helper()
		gotCode, gotOut, gotErrs := h.run(line(args)...)
		if gotCode != code || gotOut != out || gotErrs != errs {
			t.Errorf("%s: exit %d\n%s%s", args, gotCode, gotOut, gotErrs)
		}
	}
	const info = "info -c /s.properties"
	expect(info, 1, "Found problems:\n  /x/a does not exist\n  /x/b does not exist\n\n", "")
	if code, out, errs := h.run(line("format -t # -c /s.properties")...); code != 0 || strings.Count(out, "\n") != 3 || errs != "" {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	meta := string(h.read("/x/a/meta.properties"))
	directory := meta[strings.Index(meta, "directory.id=")+len("directory.id="):][:22]
	found := fmt.Sprintf("Found metadata: {cluster.id=%s, directory.id=%s, node.id=1, version=1}\n\n", cluster, directory)
	both := "Found log directories:\n  /x/a\n  /x/b\n\n"
	expect(info, 0, both+found, "")
	expect("format -gt # -c /s.properties", 0, "All of the log directories are already formatted.\n", "")

	h.write("/x/b/meta.properties", "version=1\nnode.id=2\ncluster.id="+cluster+"\n")
	expect(info, 1, both+found+"Found problem:\n  Mismatched node IDs between storage directories.\n\n", "")
	h.write("/x/b/meta.properties", "version=1\nnode.id=1\ncluster.id=x\n")
	expect(info, 1, both+found+"Found problem:\n  Mismatched cluster IDs between storage directories.\n\n", "")
	h.write("/x/b/meta.properties", "version=1\nnode.id=1\n")
	expect(info, 1, both+found+"Found problem:\n  Error loading /x/b/meta.properties: /x/b/meta.properties: the property cluster.id is missing\n\n", "")
	h.remove("/x/b/meta.properties")
	expect(info, 1, both+found+"Found problem:\n  /x/b is not formatted.\n\n", "")
	h.remove("/x/b")
	h.write("/x/b", "")
	expect(info, 1, "Found log directory:\n  /x/a\n\n"+found+"Found problem:\n  /x/b is not a directory\n\n", "")
	h.write("/x/a/meta.properties", "version=0\nbroker.id=7\n")
	h.remove("/x/b")
	expect(info, 1, "Found log directory:\n  /x/a\n\nFound metadata: {broker.id=7, version=0}\n\nFound problems:\n  /x/b does not exist\n"+
		"  The kafka configuration file appears to be for a cluster in KRaft mode, but the directories are formatted for legacy mode.\n\n", "")
}

func (h *host) read(name string) []byte {
	h.t.Helper()
	data, err := vfs.ReadFile(h.fs, name)
	if err != nil {
		h.t.Fatal(err)
	}
	return data
}

func TestFormatChoices(t *testing.T) {
	const voters = "/x/a/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
	for _, c := range []struct {
		args string
		last string // beginning of the last line
		file bool   // the voters are written
	}{
		{"-c /d.properties --standalone", "Formatting data directory /x/b with metadata.version 4.3-IV0.", true},
		{"-c /d.properties -N", "Formatting data directory /x/b", false},
		{"-c /d.properties -I 1@localhost:19093:JEXY6aqzQY-32P5TStzaFg", "Formatting data directory /x/b", true},
		{"-c /b.properties -I 9@localhost:19093:JEXY6aqzQY-32P5TStzaFg", "Formatting data directory /x/b", true},
		{"-c /b.properties", "Formatting data directory /x/b", false},
		{"-c /s.properties --release 4.2 -f group.version=1 -f group.version=0", "Formatting data directory /x/b with metadata.version 4.2-IV1.", false},
	} {
		h := newHost(t)
		code, out, errs := h.run(append([]string{"format", "-t", cluster}, line(c.args)...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if code != 0 || !strings.HasPrefix(lines[len(lines)-1], c.last) {
			t.Errorf("%s: exit %d\n%s%s", c.args, code, out, errs)
		}
		if there, err := vfs.Exists(h.fs, voters); err != nil || there != c.file {
			t.Errorf("%s: voters %t, %v", c.args, there, err)
		}
	}
	// A level that Weir does not serve is written when it is asked for, with a word about it.
	h := newHost(t)
	code, _, errs := h.run(line("format -c /s.properties -t # -f share.version=1")...)
	recs, err := metalog.ReadBootstrap(h.fs, "/x/a")
	if code != 0 || !strings.Contains(errs, "does not serve share.version=1 yet") || err != nil || len(recs) < 4 {
		t.Errorf("exit %d, %s, %d records, %v", code, errs, len(recs), err)
	}
}

func TestRandomUUID(t *testing.T) {
	h := newHost(t)
	_, one, _ := h.run("random-uuid")
	_, two, _ := h.run("random-uuid")
	if _, err := uuid.Parse(strings.TrimSpace(one)); err != nil || one == two {
		t.Errorf("%q and %q, %v", one, two, err)
	}
}

func TestHelp(t *testing.T) {
	for _, args := range []string{"-h", "--help", "format -h", "format -t x --help", "info -h", "random-uuid -h"} {
		code, out, errs := newHost(t).run(line(args)...)
		if code != 0 || !strings.HasPrefix(out, "usage: kafka-storage") || errs != "" {
			t.Errorf("%s: exit %d\n%s%s", args, code, out, errs)
		}
	}
	var names []string
	for _, c := range commands() {
		for _, f := range c.flags {
			if f.help == "" || len(f.short) != 1 {
				t.Errorf("%s %s has no help or no letter", c.name, f.long)
			}
		}
		names = append(names, c.name)
	}
	if _, out, _ := newHost(t).run("-h"); !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(out, n) }) {
		t.Error(out)
	}
}
