package interop

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/test/testnode"
)

// dump has kafka-dump-log read every file of a node that is down, and holds what it finds in the logs against what the
// node had shown. It returns how many records the tool saw.
func dump(t *testing.T, n *testnode.Node, w *world) int {
	t.Helper()
	var data, meta, sanity []string
	for _, dir := range n.LogDirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(filepath.Dir(path), "-delete") {
				return err
			}
			inMeta := strings.HasPrefix(filepath.Base(filepath.Dir(path)), "__cluster_metadata")
			switch filepath.Ext(path) {
			case ".log", ".checkpoint":
				if filepath.Base(filepath.Dir(path)) == filepath.Base(dir) {
					return nil // bootstrap.checkpoint is no log of a partition
				}
				if inMeta {
					meta = append(meta, path)
				} else {
					data = append(data, path)
				}
			case ".index", ".timeindex":
				data, sanity = append(data, path), append(sanity, path)
			case ".snapshot", ".txnindex":
				data = append(data, path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	out := dumpLog(t, data, "--deep-iteration")
	dumpLog(t, sanity, "--index-sanity-check")
	compareDump(t, out, w)
	// The decoder prints a record that it does not know, or cannot read, as an error.
	for line := range strings.Lines(dumpLog(t, meta, "--cluster-metadata-decoder", "--skip-record-metadata")) {
		if p := strings.TrimSpace(line); strings.HasPrefix(p, "payload:") && !strings.HasPrefix(p, `payload: {"type":"`) {
			t.Errorf("kafka-dump-log --cluster-metadata-decoder: %s", p)
		}
	}
	return strings.Count(out, "| offset: ")
}

// complaints are what the tool prints about a file that it does not like. It lists "-1 is followed by" for every segment
// that does not begin at 0.
var complaints = regexp.MustCompile(`(?i)isvalid: false|mismatch|^ *[0-9]+ is followed by|out of order|corrupt|exception|error|not found|could not|invalid bytes`)

func dumpLog(t *testing.T, files []string, args ...string) string {
	t.Helper()
	if len(files) == 0 {
		t.Fatal("no files for kafka-dump-log")
	}
	slices.Sort(files)
	out := testnode.Tool(t, "", "kafka-dump-log", append(args, "--files", strings.Join(files, ","))...)
	bad := map[string]bool{}
	file := ""
	for line := range strings.Lines(out.Stdout + "\n" + out.Stderr) {
		name, ok := strings.CutPrefix(line, "Dumping ")
		if !ok {
			name, ok = strings.CutPrefix(line, "Non-consecutive offsets in ")
		}
		if ok {
			file = filepath.Join(filepath.Base(filepath.Dir(name)), filepath.Base(strings.TrimSpace(name)))
		}
		if strings.Contains(line, " is followed by ") && (strings.HasPrefix(file, "table-") || strings.HasPrefix(file, offsetsTopic)) {
			continue // compaction leaves holes
		}
		if strings.Contains(line, "Found timestamp mismatch") && (strings.Contains(line, "/table-") || strings.Contains(line, "/"+offsetsTopic+"-")) {
			continue // and empty batches, which both systems' time indexes know
		}
		if !strings.Contains(line, "payload: ") && complaints.MatchString(line) && len(bad) < 20 {
			bad[file+": "+strings.TrimSpace(line)] = true
		}
	}
	for line := range bad {
		t.Errorf("kafka-dump-log %s: %s", strings.Join(args, " "), line)
	}
	if out.Code != 0 {
		t.Errorf("kafka-dump-log %s: exit code %d\n%s", strings.Join(args, " "), out.Code, out.Stderr)
	}
	return out.Stdout
}

// compareDump looks for exactly the offsets that the node served.
func compareDump(t *testing.T, out string, w *world) {
	t.Helper()
	seen := map[tp]map[int64]bool{}
	var at tp
	record := regexp.MustCompile(`^\| offset: (\d+) `)
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(line, "Dumping "); ok {
			dir := filepath.Base(filepath.Dir(name))
			i := strings.LastIndexByte(dir, '-')
			p, err := strconv.Atoi(dir[i+1:])
			if err != nil {
				t.Fatalf("kafka-dump-log: %s", line)
			}
			at = tp{dir[:i], int32(p)}
			if seen[at] == nil {
				seen[at] = map[int64]bool{}
			}
		} else if m := record.FindStringSubmatch(line); m != nil {
			offset, err := strconv.ParseInt(m[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			seen[at][offset] = true
		}
	}
	for name, topic := range w.Topics {
		for i, p := range topic.Partitions {
			at := tp{name, int32(i)}
			for _, r := range p.Records {
				if !seen[at][r.Offset] {
					t.Errorf("kafka-dump-log does not show offset %d of %s-%d", r.Offset, name, i)
					break
				}
			}
			for offset := range seen[at] {
				if offset >= p.End {
					t.Errorf("kafka-dump-log shows offset %d of %s-%d, which ended at %d", offset, name, i, p.End)
					break
				}
			}
		}
	}
}
