package format

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"weir/internal/checkpoint"
	"weir/internal/config"
	"weir/internal/image"
	"weir/internal/metalog"
	"weir/internal/records"
	"weir/internal/rng"
	"weir/internal/uuid"
	"weir/internal/vfs"
	"weir/internal/vfs/errfs"
	"weir/internal/vfs/memfs"
)

const (
	cluster   = "4L6g3nShT-eMCtK--X86sw"
	voterFile = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
)

// run formats and returns what was printed.
func run(t *testing.T, fsys vfs.FS, change func(*Options)) ([]string, error) {
	t.Helper()
	var out []string
	o := Options{FS: fsys, NowMs: 1_700_000_000_000, Rand: rng.New(1), ClusterID: cluster, NodeID: 1, LogDirs: []string{"/x/a", "/x/b"},
		Quorum: Quorum{Static: true, Listener: "CONTROLLER"}, Print: func(l string) { out = append(out, l) }}
	if change != nil {
		change(&o)
	}
	return out, Format(o)
}

// levels reads a bootstrap.checkpoint as name=level.
func levels(t *testing.T, fsys vfs.FS, dir string) []string {
	t.Helper()
	recs, err := metalog.ReadBootstrap(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range recs {
		switch m := r.Record.(type) {
		case *records.FeatureLevelRecord:
			out = append(out, fmt.Sprintf("%s=%d", m.Name, m.FeatureLevel))
		case *records.UserScramCredentialRecord:
			out = append(out, "scram "+m.Name)
		}
	}
	return out
}

func exists(t *testing.T, fsys vfs.FS, name string) bool {
	t.Helper()
	there, err := vfs.Exists(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	return there
}

func TestFormat(t *testing.T) {
	fsys := memfs.New()
	out, err := run(t, fsys, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Bootstrap metadata: BootstrapMetadata(records=[ApiMessageAndVersion(FeatureLevelRecord(name='metadata.version', featureLevel=30) at version 0), ApiMessageAndVersion(FeatureLevelRecord(name='eligible.leader.replicas.version', featureLevel=1) at version 0), ApiMessageAndVersion(FeatureLevelRecord(name='group.version', featureLevel=1) at version 0), ApiMessageAndVersion(FeatureLevelRecord(name='transaction.version', featureLevel=2) at version 0)], metadataVersionLevel=30, source=format command)",
		"Formatting metadata directory /x/a with metadata.version 4.3-IV0.",
		"Formatting data directory /x/b with metadata.version 4.3-IV0.",
	}
	if !slices.Equal(out, want) {
		t.Errorf("printed\n%s", strings.Join(out, "\n"))
	}
	// All of it survives a power cut at once.
	disk := fsys.Crash(nil)
	seen := map[uuid.UUID]bool{}
	for _, dir := range []string{"/x/a", "/x/b"} {
		m, err := checkpoint.ReadMetaProperties(disk, filepath.Join(dir, checkpoint.MetaFile))
		if err != nil || m.ClusterID != cluster || m.NodeID != 1 || m.Version != 1 || m.DirectoryID.Reserved() || seen[m.DirectoryID] {
			t.Errorf("%s: %+v, %v", dir, m, err)
		}
		seen[m.DirectoryID] = true
		if got := levels(t, disk, dir); !slices.Equal(got, []string{"metadata.version=30", "eligible.leader.replicas.version=1", "group.version=1", "transaction.version=2"}) {
			t.Errorf("%s: %v", dir, got)
		}
		if exists(t, disk, filepath.Join(dir, voterFile)) {
			t.Errorf("%s has voters", dir)
		}
	}
}

func TestFormatAgain(t *testing.T) {
	fsys := memfs.New()
	if _, err := run(t, fsys, nil); err != nil {
		t.Fatal(err)
	}
	_, err := run(t, fsys, nil)
	if want := "Log directory /x/a is already formatted. Use --ignore-formatted to ignore this directory and format the others."; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	ignore := func(o *Options) { o.IgnoreFormatted = true }
	out, err := run(t, fsys, ignore)
	if err != nil || !slices.Equal(out, []string{"All of the log directories are already formatted."}) {
		t.Errorf("%v, %v", out, err)
	}
	// A replaced disk is formatted beside the others, whose files stay.
	before, err := vfs.ReadFile(fsys, "/x/a/meta.properties")
	if err != nil {
		t.Fatal(err)
	}
	if err := fsys.RemoveAll("/x/b"); err != nil {
		t.Fatal(err)
	}
	if out, err = run(t, fsys, ignore); err != nil || len(out) != 2 || !exists(t, fsys, "/x/b/meta.properties") {
		t.Errorf("%v, %v", out, err)
	}
	if after, err := vfs.ReadFile(fsys, "/x/a/meta.properties"); err != nil || string(after) != string(before) {
		t.Errorf("%s, %v", after, err)
	}
	for want, change := range map[string]func(*Options){
		"Invalid cluster.id in: /x/a/meta.properties. Expected other, but read " + cluster:     func(o *Options) { o.ClusterID = "other" },
		"Stored node id 1 doesn't match previous node id 7 in /x/a/meta.properties. If you mo": func(o *Options) { o.NodeID = 7 },
	} {
		if _, err := run(t, fsys, func(o *Options) { ignore(o); change(o) }); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestDynamicVoters(t *testing.T) {
	dir := uuid.UUID{0: 36, 15: 1}
	initial := []InitialController{{1, "h1", 9093, dir}, {2, "::1", 9094, uuid.UUID{5}}}
	for _, c := range []struct {
		name   string
		nodeID int32
		quorum Quorum
		kind   string
		voters bool
	}{
		{"standalone", 1, Quorum{Dynamic: true, Standalone: &Address{"h", 9093}}, "dynamic metadata voter directory", true},
		{"initial, a voter", 1, Quorum{Dynamic: true, Initial: initial}, "dynamic metadata voter directory", true},
		{"initial, no voter", 9, Quorum{Dynamic: true, Initial: initial}, "dynamic metadata directory", true},
		{"no initial controllers", 1, Quorum{Dynamic: true}, "metadata directory", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := memfs.New()
			c.quorum.Listener = "CONTROLLER"
			out, err := run(t, fsys, func(o *Options) { o.Quorum, o.NodeID, o.MetadataDir = c.quorum, c.nodeID, "/m/d" })
			if err != nil {
				t.Fatal(err)
			}
			if want := "Formatting " + c.kind + " /m/d with metadata.version 4.3-IV0."; out[1] != want || len(out) != 4 {
				t.Errorf("printed %q", out[1:])
			}
			if exists(t, fsys, filepath.Join("/m/d", voterFile)) != c.voters || exists(t, fsys, filepath.Join("/x/a", voterFile)) {
				t.Error("voters in the wrong place")
			}
			m, err := checkpoint.ReadMetaProperties(fsys, "/m/d/meta.properties")
			if err != nil || (len(c.quorum.Initial) > 0 && c.nodeID == 1) != (m.DirectoryID == dir) {
				t.Errorf("%+v, %v", m, err)
			}
		})
	}
}

func TestLevels(t *testing.T) {
	release := func(name string) *Release {
		r, err := ParseRelease(name, false)
		if err != nil {
			t.Fatal(err)
		}
		return &r
	}
	dynamic := Quorum{Dynamic: true, Listener: "C"}
	for _, c := range []struct {
		name    string
		change  func(*Options)
		want    []string // of bootstrap.checkpoint
		refused string
	}{
		{"older release", func(o *Options) { o.Release = release("4.0-IV0") }, []string{"metadata.version=22", "group.version=1"}, ""},
		{"by level", func(o *Options) { o.Features = map[string]int16{"metadata.version": 26} }, []string{"metadata.version=26", "eligible.leader.replicas.version=1", "group.version=1", "transaction.version=2"}, ""},
		{"others on request", func(o *Options) {
			o.Features = map[string]int16{"transaction.version": 2, "group.version": 1, "eligible.leader.replicas.version": 0}
		}, []string{"metadata.version=30", "group.version=1", "transaction.version=2"}, ""},
		{"kraft.version is no record", func(o *Options) { o.Quorum, o.Features = dynamic, map[string]int16{"kraft.version": 1} },
			[]string{"metadata.version=30", "eligible.leader.replicas.version=1", "group.version=1", "transaction.version=2"}, ""},
		{"both", func(o *Options) { o.Release, o.Features = release("4.0"), map[string]int16{"metadata.version": 26} }, nil, "Use --release-version instead of --feature metadata.version=X to avoid ambiguity."},
		{"not stable", func(o *Options) { o.Features = map[string]int16{"metadata.version": 31} }, nil, "metadata.version 4.4-IV0 is not yet stable."},
		{"no such level", func(o *Options) { o.Features = map[string]int16{"metadata.version": 99} }, nil, "No MetadataVersion with feature level 99. Valid feature levels are from 7 to 31."},
		{"no such feature", func(o *Options) { o.Features = map[string]int16{"nope.version": 1} }, nil,
			"Unsupported feature: nope.version. Supported features are: eligible.leader.replicas.version, group.version, kraft.version, share.version, streams.version, transaction.version"},
		{"too high", func(o *Options) { o.Features = map[string]int16{"group.version": 9} }, nil, "No feature:group.version with feature level 9"},
		{"negative", func(o *Options) { o.Features = map[string]int16{"group.version": -1} }, nil, "No feature:group.version with feature level -1"},
		{"dependency", func(o *Options) {
			o.Release, o.Features = release("3.9"), map[string]int16{"eligible.leader.replicas.version": 1}
		}, nil,
			"eligible.leader.replicas.version could not be set to 1 because it depends on metadata.version level 23"},
		{"kraft.version 0", func(o *Options) { o.Quorum, o.Features = dynamic, map[string]int16{"kraft.version": 0} }, nil, "Cannot set kraft.version to 0 if"},
		{"kraft.version 1", func(o *Options) { o.Features = map[string]int16{"kraft.version": 1} }, nil, "Cannot set kraft.version to 1 unless"},
		{"scram", func(o *Options) { o.Scram = []records.UserScramCredentialRecord{{Name: "alice"}} },
			[]string{"metadata.version=30", "eligible.leader.replicas.version=1", "group.version=1", "transaction.version=2", "scram alice"}, ""},
		{"scram too early", func(o *Options) {
			o.Release, o.Scram = release("3.3"), []records.UserScramCredentialRecord{{Name: "alice"}}
		}, nil,
			"SCRAM is only supported in metadata.version 3.5-IV2 or later."},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := memfs.New()
			_, err := run(t, fsys, c.change)
			if c.refused != "" {
				var r Refusal
				if !errors.As(err, &r) || !strings.HasPrefix(string(r), c.refused) {
					t.Errorf("%v", err)
				}
				if exists(t, fsys, "/x") {
					t.Error("something was written")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := levels(t, fsys, "/x/a"); !slices.Equal(got, c.want) {
				t.Errorf("%v", got)
			}
		})
	}
}

// meta.properties is written last: a directory that has it is complete, wherever the power was cut.
func TestPowerCut(t *testing.T) {
	for n := range 200 {
		fsys := memfs.New()
		faulty := errfs.Wrap(fsys, errfs.Rule{Skip: n, Err: syscall.EIO})
		_, err := run(t, faulty, func(o *Options) { o.Quorum = Quorum{Dynamic: true, Standalone: &Address{"h", 1}, Listener: "C"} })
		disk := fsys.Crash(nil)
		for _, dir := range []string{"/x/a", "/x/b"} {
			if !exists(t, disk, filepath.Join(dir, checkpoint.MetaFile)) {
				continue
			}
			levels(t, disk, dir)
			if dir == "/x/a" && !exists(t, disk, filepath.Join(dir, voterFile)) {
				t.Fatalf("after %d calls: formatted without its voters", n)
			}
		}
		if err == nil {
			return // no call was left to fail
		}
	}
	t.Error("formatting takes more than 200 calls")
}

func TestUnreadableDirectories(t *testing.T) {
	fsys := memfs.New()
	faulty := errfs.Wrap(fsys, errfs.Rule{Path: "/x/b/*", Err: syscall.EIO})
	out, err := run(t, faulty, nil)
	if err != nil || !slices.Contains(out, "I/O error trying to read log directory /x/b. Ignoring...") || !exists(t, fsys, "/x/a/meta.properties") {
		t.Errorf("%v, %v", out, err)
	}
	faulty.Set(errfs.Rule{Err: syscall.EIO})
	if _, err := run(t, faulty, nil); err == nil || err.Error() != "No available log directories to format." {
		t.Errorf("%v", err)
	}
}

func TestParseRelease(t *testing.T) {
	for text, want := range map[string]int16{"4.3-IV0": 30, "4.3": 30, "4.3.1": 30, "3.9.2": 21, "4.0": 25, "3.3": 7, "3.3-IV3": 7} {
		if r, err := ParseRelease(text, false); err != nil || r.Level != want {
			t.Errorf("%s: %+v, %v", text, r, err)
		}
	}
	for _, text := range []string{"", "4", "4.4", "4.4-IV0", "3.9-IV1", "3.3-IV0", "4.3-IV0x", "3.0"} {
		if r, err := ParseRelease(text, false); err == nil || !strings.HasSuffix(err.Error(), "4.2-IV1, 4.3-IV0") {
			t.Errorf("%q: %+v, %v", text, r, err)
		}
	}
	if r, err := ParseRelease("4.4-IV0", true); err != nil || r.Level != 31 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestServed(t *testing.T) {
	for _, r := range Served(false) {
		if r.Name == image.FeatureMetadata {
			continue
		}
		if f, ok := FeatureNamed(r.Name); !ok || f.Served > f.Max || r.Max != f.Served {
			t.Errorf("%+v, %+v", r, f)
		}
	}
}

func TestParseInitialControllers(t *testing.T) {
	got, err := ParseInitialControllers("0@example.com:8082:JEXY6aqzQY-32P5TStzaFg, 1@[::1]:8083:MvDxzVmcRsaTz33bUuRU6A")
	if err != nil || len(got) != 2 || got[0].Host != "example.com" || got[0].Port != 8082 || got[1].Host != "::1" || got[1].Directory.String() != "MvDxzVmcRsaTz33bUuRU6A" {
		t.Errorf("%+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"":                                      "No voters given.",
		",":                                     "No voters given.",
		"0example.com:1:JEXY6aqzQY-32P5TStzaFg": "No @ found",
		"x@h:1:JEXY6aqzQY-32P5TStzaFg":          "Failed to parse node id",
		"-1@h:1:JEXY6aqzQY-32P5TStzaFg":         "Invalid negative node id -1",
		"1@h":                                   "No colon following hostname",
		"1@[::1]":                               "No colon following hostname",
		"1@[::1:1:JEXY6aqzQY-32P5TStzaFg":       "no right bracket",
		"1@h:1":                                 "No colon following port",
		"1@h:x:JEXY6aqzQY-32P5TStzaFg":          "Failed to parse port",
		"1@h:70000:JEXY6aqzQY-32P5TStzaFg":      "Failed to parse port",
		"1@h:1:JEXY":                            "Failed to parse directory ID",
		"1@h:1:JEXY6aqzQY-32P5TStzaFg,1@i:1:" + "MvDxzVmcRsaTz33bUuRU6A": "Node id 1 was specified more than once.",
	} {
		if _, err := ParseInitialControllers(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestQuorumFor(t *testing.T) {
	voters := []config.Voter{{ID: 1}}
	addresses := []config.Listener{{Name: "C", Host: "", Port: 9093}}
	initial := []InitialController{{ID: 1}}
	for _, c := range []struct {
		name   string
		node   config.Node
		choice Choice
		want   string // error
		check  func(Quorum) bool
	}{
		{"static", config.Node{Controller: true, QuorumVoters: voters}, Choice{}, "", func(q Quorum) bool { return q.Static && !q.Dynamic }},
		{"static, none", config.Node{Controller: true, QuorumVoters: voters}, Choice{None: true}, "", func(q Quorum) bool { return q.Static && !q.Dynamic }},
		{"static, standalone", config.Node{Controller: true, QuorumVoters: voters}, Choice{Standalone: true}, "You cannot specify controller.quorum.voters", nil},
		{"static, initial", config.Node{Controller: true, QuorumVoters: voters}, Choice{Initial: initial}, "You cannot specify controller.quorum.voters", nil},
		{"nothing chosen", config.Node{Controller: true}, Choice{}, "Because controller.quorum.voters is not set on this controller", nil},
		{"a broker chooses nothing", config.Node{Broker: true}, Choice{}, "", func(q Quorum) bool { return !q.Static && !q.Dynamic }},
		{"a broker alone", config.Node{Broker: true}, Choice{Standalone: true}, "You can only use --standalone on a controller.", nil},
		{"standalone", config.Node{Controller: true, ControllerListeners: []string{"C"}, ControllerAddresses: addresses}, Choice{Standalone: true}, "",
			func(q Quorum) bool {
				return q.Dynamic && *q.Standalone == Address{"localhost", 9093} && q.Listener == "C"
			}},
		{"initial", config.Node{Broker: true, ControllerListeners: []string{"C"}}, Choice{Initial: initial}, "",
			func(q Quorum) bool { return q.Dynamic && len(q.Initial) == 1 && q.Listener == "C" }},
	} {
		q, err := QuorumFor(&c.node, c.choice)
		switch {
		case c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)):
			t.Errorf("%s: %v", c.name, err)
		case c.want == "" && (err != nil || !c.check(q)):
			t.Errorf("%s: %+v, %v", c.name, q, err)
		}
	}
}

func TestScram(t *testing.T) {
	// The salted password of RFC 7677's example: user "user", password "pencil".
	r, err := ParseScram(`SCRAM-SHA-256=[name=user,password=pencil,salt="W22ZaJ0SNY7soEsUEjb6gQ==",iterations=4096]`, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	same, err := ParseScram(`SCRAM-SHA-256=[name=user,saltedpassword="xKSVEDI6tPlSysH6mUQZOeeOp01r6B3fcJbodRPcYV0=",salt="W22ZaJ0SNY7soEsUEjb6gQ=="]`, rng.New(1))
	if err != nil || string(same.StoredKey) != string(r.StoredKey) || string(same.ServerKey) != string(r.ServerKey) || len(r.ServerKey) != 32 {
		t.Errorf("%x and %x, %v", r.StoredKey, same.StoredKey, err)
	}
	r, err = ParseScram("SCRAM-SHA-512=[name=alice,password=alice-secret]", rng.New(1))
	if err != nil || r.Mechanism != 2 || r.Iterations != 4096 || len(r.Salt) == 0 || len(r.StoredKey) != 64 {
		t.Errorf("%+v, %v", r, err)
	}
	for arg, want := range map[string]string{
		"SCRAM-SHA-256=[name=alice]":                         "You must supply one of 'password' or 'saltedpassword' to add-scram",
		"SCRAM-SHA-256=[password=x]":                         "You must supply 'name' to add-scram",
		"SCRAM-SHA-257=[name=alice]":                         "The add-scram mechanism SCRAM-SHA-257 is not supported.",
		"SCRAM-SHA-256=[name=a,password=a,iterations=1]":     "The 'iterations' value must be >= 4096 for add-scram using SCRAM_SHA_256",
		"SCRAM-SHA-256=[name=a,password=a,iterations=20000]": "The 'iterations' value must be <= 16384 for add-scram using SCRAM_SHA_256",
		"SCRAM-SHA-256=[name=a,password=a,iterations=x]":     "is not a number",
		"SCRAM-SHA-256=[name=a,saltedpassword=YQ==]":         "You must supply 'salt'",
		"SCRAM-SHA-256=[name=a,password=b,saltedpassword=b]": "only supply one of",
		"SCRAM-SHA-256=[name=a,password=b,salt=!]":           "not base64",
		`SCRAM-SHA-256=[name="a]`:                            "a quote is not closed",
		"SCRAM-SHA-256=[name]":                               "no equals sign",
		"SCRAM-SHA-256=[name=a,name=b]":                      "given twice",
		"SCRAM-SHA-256=[name=a,color=b]":                     "does not know 'color'",
		"SCRAM-SHA-256":                                      "Failed to parse",
		"SCRAM-SHA-256=name=a":                               "Failed to parse",
	} {
		if _, err := ParseScram(arg, rng.New(1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", arg, err)
		}
	}
}
