package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"weir/internal/records"
	"weir/internal/uuid"
	"weir/internal/vfs"
	"weir/internal/vfs/memfs"
)

const path = "/data/file"

// fsWith returns a file system whose only file holds text.
func fsWith(t testing.TB, text string) vfs.FS {
	t.Helper()
	fsys := memfs.New()
	if err := fsys.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFileAtomic(fsys, path, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return fsys
}

func content(t testing.TB, fsys vfs.FS) string {
	t.Helper()
	data, err := vfs.ReadFile(fsys, path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func id(t testing.TB, s string) uuid.UUID {
	t.Helper()
	u, err := uuid.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// kind is one of the files: how it is read, and how what was read is written.
type kind struct {
	read  func(fsys vfs.FS) (any, error)
	write func(fsys vfs.FS, v any) error
}

type quorumState struct {
	data    records.QuorumStateData
	version int16
}

func kinds() map[string]kind {
	return map[string]kind{
		"offsets": {
			func(f vfs.FS) (any, error) { return ReadOffsets(f, path) },
			func(f vfs.FS, v any) error { return WriteOffsets(f, path, v.(Offsets)) }},
		"epochs": {
			func(f vfs.FS) (any, error) { return ReadEpochs(f, path) },
			func(f vfs.FS, v any) error { return WriteEpochs(f, path, v.([]EpochEntry)) }},
		"meta": {
			func(f vfs.FS) (any, error) { return ReadMetaProperties(f, path) },
			func(f vfs.FS, v any) error { return WriteMetaProperties(f, path, v.(MetaProperties)) }},
		"partition": {
			func(f vfs.FS) (any, error) { return ReadPartitionMetadata(f, path) },
			func(f vfs.FS, v any) error { return WritePartitionMetadata(f, path, v.(PartitionMetadata)) }},
		"clean": {
			func(f vfs.FS) (any, error) { return ReadCleanShutdown(f, path) },
			func(f vfs.FS, v any) error { return WriteCleanShutdown(f, path, v.(CleanShutdown)) }},
		"quorum": {
			func(f vfs.FS) (any, error) {
				d, v, err := ReadQuorumState(f, path)
				return quorumState{d, v}, err
			},
			func(f vfs.FS, v any) error {
				q := v.(quorumState)
				return WriteQuorumState(f, path, &q.data, q.version)
			}},
	}
}

// What Apache Kafka 4.3.1 left in its directories reads as expected and, where nothing is lost, is written the same.
func TestRead(t *testing.T) {
	dir := id(t, "XsHPqpKCh99Eddk85DvZxA")
	cluster := "4L6g3nShT-eMCtK--X86sw"
	state := records.NewQuorumStateData()
	state.LeaderID, state.LeaderEpoch, state.CurrentVoters = 1, 1, []records.QuorumStateDataCurrentVoter{{VoterID: 1}}
	state1 := records.NewQuorumStateData()
	state1.LeaderID, state1.LeaderEpoch, state1.VotedID, state1.VotedDirectoryID = 1, 3, 1, dir
	for _, c := range []struct {
		name, kind, text string
		want             any
		written          string // "=" when the same
	}{
		{"offsets", "offsets", "0\n2\nbar 10 7\nfoo 1 0\n", Offsets{{"foo", 1}: 0, {"bar", 10}: 7}, "="},
		{"offsets, Kafka's order", "offsets", "0\n2\nfoo 2 0\nfoo 1 5\n", Offsets{{"foo", 1}: 5, {"foo", 2}: 0}, "0\n2\nfoo 1 5\nfoo 2 0\n"},
		{"no offsets", "offsets", "0\n0\n", Offsets{}, "="},
		{"empty file", "offsets", "", Offsets{}, "0\n0\n"},
		{"no last line end", "offsets", "0\n1\nfoo 1 5", Offsets{{"foo", 1}: 5}, "0\n1\nfoo 1 5\n"},
		{"epochs", "epochs", "0\n2\n0 0\n3 17\n", []EpochEntry{{0, 0}, {3, 17}}, "="},
		{"partition", "partition", "version: 0\ntopic_id: XsHPqpKCh99Eddk85DvZxA", PartitionMetadata{0, dir}, "="},
		{"clean stop", "clean", `{"version":0,"brokerEpoch":12}`, CleanShutdown{12}, "="},
		{"clean stop, other order", "clean", " {\"brokerEpoch\": 12, \"x\":1, \"version\" :0}\n", CleanShutdown{12}, `{"version":0,"brokerEpoch":12}`},
		{"clean stop before 3.8", "clean", "", CleanShutdown{-1}, `{"version":0,"brokerEpoch":-1}`},
		{"quorum 0", "quorum", `{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}`,
			quorumState{state, 0}, "="},
		{"quorum 1", "quorum", `{"leaderId":1,"leaderEpoch":3,"votedId":1,"votedDirectoryId":"XsHPqpKCh99Eddk85DvZxA","data_version":1}`, quorumState{state1, 1}, "="},
		{"meta, by Java", "meta", "#\n#Mon Nov 30 03:08:31 UTC 2026\nnode.id=1\ndirectory.id=XsHPqpKCh99Eddk85DvZxA\nversion=1\ncluster.id=" + cluster + "\n",
			MetaProperties{1, cluster, 1, dir}, "#\nnode.id=1\ndirectory.id=XsHPqpKCh99Eddk85DvZxA\nversion=1\ncluster.id=" + cluster + "\n"},
		{"meta 0", "meta", "#\nversion=0\nbroker.id=5\n", MetaProperties{0, "", 5, uuid.UUID{}}, "#\nbroker.id=5\nversion=0\n"},
		{"meta without version", "meta", "broker.id=5\nnode.id=6\n", MetaProperties{0, "", 5, uuid.UUID{}}, "#\nbroker.id=5\nversion=0\n"},
		{"meta, all the syntax", "meta", "! c\r\n\r\n  version : 1\nnode.id \\\n   = 7\ncluster.id=a\\:b\\u0041\\\\\nother\n", MetaProperties{1, `a:bA\`, 7, uuid.UUID{}}, "#\nnode.id=7\nversion=1\ncluster.id=a\\:bA\\\\\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, fsys := kinds()[c.kind], fsWith(t, c.text)
			got, err := k.read(fsys)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("read %+v", got)
			}
			if err := k.write(fsys, got); err != nil {
				t.Fatal(err)
			}
			want := c.written
			if want == "=" {
				want = c.text
			}
			if text := content(t, fsys); text != want {
				t.Errorf("wrote %q", text)
			}
			if again, err := k.read(fsys); err != nil || !reflect.DeepEqual(again, got) {
				t.Errorf("read again %+v, %v", again, err)
			}
		})
	}
}

func TestDamage(t *testing.T) {
	for _, c := range []struct{ kind, text, want string }{
		{"offsets", "x\n", `/data/file:1: a version was expected, not "x"`},
		{"offsets", "1\n0\n", "/data/file:1: version 1, only 0 is known"},
		{"offsets", "0\n", "/data/file:2: the number of entries is missing"},
		{"offsets", "0\n-1\n", "/data/file:2: a number of entries was expected"},
		{"offsets", "0\n2\nfoo 1 5\n", "/data/file:2: 2 entries were announced, the file has 1"},
		{"offsets", "0\n1\nfoo 1 5\nfoo 2 5\n", "the file has 2"},
		{"offsets", "0\n1\nfoo 1\n", `/data/file:3: 3 fields were expected in "foo 1"`},
		{"offsets", "0\n1\nfoo -1 5\n", "/data/file:3: no valid partition"},
		{"offsets", "0\n1\nfoo 1 9999999999999999999\n", "/data/file:3: no valid offset"},
		{"offsets", "\x00\x00\x00\x00", "/data/file:1: a version"},
		{"epochs", "0\n1\nx 1\n", "/data/file:3: no valid leader epoch"},
		{"epochs", "0\n1\n1 x\n", "/data/file:3: no valid offset"},
		{"partition", "", `/data/file:1: the line "version: …" is missing`},
		{"partition", "version: 0\n", `/data/file:2: the line "topic_id: …" is missing`},
		{"partition", "version: 1\ntopic_id: x", "/data/file:1: version \"1\""},
		{"partition", "version: 0\ntopic: x", `/data/file:2: the line "topic_id: …" was expected`},
		{"partition", "version: 0\ntopic_id: x", "/data/file:2: "},
		{"partition", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "the topic id is zero"},
		{"clean", "{", "/data/file: unexpected end"},
		{"clean", `{"version":1,"brokerEpoch":1}`, "version 0 was expected"},
		{"clean", `{"version":0}`, "brokerEpoch is missing"},
		{"quorum", "{", "/data/file: unexpected end"},
		{"quorum", `{"leaderId":1}`, "data_version is missing"},
		{"quorum", `{"data_version":2}`, "data_version 2"},
		{"quorum", `{"leaderEpoch":1,"votedId":-1,"data_version":0}`, "leaderId is missing"},
		{"quorum", `{"leaderId":1,"leaderEpoch":1,"votedId":-1,"data_version":1}`, "votedDirectoryId is missing"},
		{"quorum", `{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"x","data_version":1}`, "/data/file: "},
		{"meta", "#\nversion=2\n", "/data/file:2: version \"2\""},
		{"meta", "version=1\ncluster.id=x\n", "the property node.id is missing"},
		{"meta", "version=1\nnode.id=1\n", "the property cluster.id is missing"},
		{"meta", "version=1\ncluster.id=x\nnode.id=one\n", `/data/file:3: node.id "one"`},
		{"meta", "version=1\ncluster.id=x\nnode.id=1\ndirectory.id=x\n", "/data/file:4: directory.id"},
		{"meta", "version=1\ncluster.id=\\u00", `/data/file:2: a \u escape is cut`},
		{"meta", "version=1\ncluster.id=\\u00zz", `/data/file:2: a bad \u escape`},
	} {
		_, err := kinds()[c.kind].read(fsWith(t, c.text))
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: %v, want %q", c.kind, c.text, err, c.want)
		}
	}
}

func TestMissingFile(t *testing.T) {
	for name, k := range kinds() {
		if _, err := k.read(memfs.New()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A clean-shutdown marker that cannot be understood still says that the stop was clean.
func TestDamagedCleanShutdownIsClean(t *testing.T) {
	c, err := ReadCleanShutdown(fsWith(t, "rubbish"), path)
	if err == nil || c.BrokerEpoch != -1 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestRealFileSystem(t *testing.T) {
	name := filepath.Join(t.TempDir(), RecoveryPointFile)
	want := Offsets{{"a", 0}: 1}
	if err := WriteOffsets(vfs.OS(), name, want); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadOffsets(vfs.OS(), name); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if left, err := os.ReadDir(filepath.Dir(name)); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// FuzzRead reads arbitrary text as every kind of file; what is accepted must survive writing and reading.
func FuzzRead(f *testing.F) {
	for _, s := range []string{
		"0\n2\nfoo 1 0\nfoo 2 5\n", "0\n1\n0 0\n", "version: 0\ntopic_id: XsHPqpKCh99Eddk85DvZxA", `{"version":0,"brokerEpoch":12}`,
		`{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}`,
		`{"leaderId":1,"leaderEpoch":3,"votedId":1,"votedDirectoryId":"XsHPqpKCh99Eddk85DvZxA","data_version":1}`,
		"#\n#Mon\nnode.id=1\ndirectory.id=XsHPqpKCh99Eddk85DvZxA\nversion=1\ncluster.id=a\\:\\\n b\\u0041\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, k := range kinds() {
			fsys := fsWith(t, text)
			v, err := k.read(fsys)
			if err != nil {
				continue
			}
			if err := k.write(fsys, v); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			again, err := k.read(fsys)
			if err != nil {
				t.Fatalf("%s: own text refused: %v\n%s", name, err, content(t, fsys))
			}
			if name != "meta" && !reflect.DeepEqual(v, again) { // characters beyond UTF-16 do not survive Java's escapes
				t.Fatalf("%s: %+v became %+v", name, v, again)
			}
		}
	})
}

func FuzzProperties(f *testing.F) {
	f.Add("a=b\\\n  c\n#x\n\\u0041 : d\n")
	f.Fuzz(func(t *testing.T, text string) {
		props, err := parseProperties(text)
		if err != nil {
			return
		}
		for k, p := range props {
			if p.line < 1 || p.line > strings.Count(text, "\n")+1 {
				t.Fatalf("%q is said to stand on line %d", k, p.line)
			}
		}
	})
}
