package cluster

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/test/testnode"
)

// serve runs `weir server` to its end, which must come by itself.
func serve(t *testing.T, args ...string) testnode.Output {
	t.Helper()
	return testnode.Weir(t, "", append([]string{"server"}, args...)...)
}

// refused checks that the output names the mistake, and nothing was served.
func refused(t *testing.T, out testnode.Output, want ...string) {
	t.Helper()
	if out.Code != 1 {
		t.Errorf("exit code %d, want 1", out.Code)
	}
	text := lastLine(out.Stderr)
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("the message does not tell %q:\n%s", w, text)
		}
	}
	if strings.Contains(out.Stderr, "goroutine ") {
		t.Errorf("a stack instead of a message:\n%s", out.Stderr)
	}
}

// lastLine is the message with which a command ended, which may have several lines.
func lastLine(stderr string) string {
	if i := strings.LastIndex(stderr, "\nweir: "); i >= 0 {
		return stderr[i+1:]
	}
	return stderr
}

// TestBadProperties: each mistake in server.properties ends the start with exit code 1 and a message that names file,
// line and key.
func TestBadProperties(t *testing.T) {
	const good = `process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:19192,CONTROLLER://127.0.0.1:19193
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:19193
`
	for _, c := range []struct {
		name, text string
		want       []string // at FILE:line the rest
	}{
		{"not a number", good + "num.partitions=four\n", []string{":6", "num.partitions", "four"}},
		{"out of range", good + "num.partitions=0\n", []string{":6", "num.partitions", "0"}},
		{"not a boolean", good + "auto.create.topics.enable=maybe\n", []string{":6", "auto.create.topics.enable", "maybe", "true", "false"}},
		{"not one of a list", good + "compression.type=brotli\n", []string{":6", "compression.type", "brotli", "zstd"}},
		{"not an endpoint", strings.Replace(good, "PLAINTEXT://127.0.0.1:19192", "PLAINTEXT:/127.0.0.1", 1), []string{":3", "listeners"}},
		{"a port twice", strings.Replace(good, "19193,", "19192,", 1) + "listeners=PLAINTEXT://127.0.0.1:19192,CONTROLLER://127.0.0.1:19192\n", []string{"listeners", "19192"}},
		{"an unknown role", strings.Replace(good, "broker,controller", "broker,zookeeper", 1), []string{":1", "process.roles", "zookeeper"}},
		{"no node id", strings.Replace(good, "node.id=1\n", "", 1), []string{"node.id"}},
		{"no controller listener", strings.Replace(good, "controller.listener.names=CONTROLLER\n", "", 1), []string{"controller.listener.names"}},
		{"not among the voters", strings.Replace(good, "voters=1@", "voters=2@", 1), []string{"controller.quorum.voters"}},
		{"a bad voter", strings.Replace(good, "1@127.0.0.1:19193", "127.0.0.1", 1), []string{":5", "controller.quorum.voters"}},
		{"a bad escape", good + "log.dirs=\\u12\n", []string{":6"}},
		{"ZooKeeper", good + "zookeeper.connect=localhost:2181\n", []string{":6", "zookeeper.connect", "process.roles"}},
		{"ZooKeeper alone", "broker.id=1\nzookeeper.connect=localhost:2181\nlisteners=PLAINTEXT://:9092\n", []string{":2", "zookeeper.connect", "process.roles"}},
		{"a protocol that is not served", strings.Replace(good, "PLAINTEXT://", "SSL://", 1) + "listener.security.protocol.map=SSL:SSL,CONTROLLER:PLAINTEXT\nsecurity.inter.broker.protocol=SSL\n", []string{"SSL"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "server.properties")
			write(t, file, c.text+"log.dir="+filepath.Join(dir, "data")+"\n")
			out := serve(t, file)
			want := c.want
			if len(want) > 0 && want[0][0] == ':' {
				want = append([]string{file + want[0]}, want[1:]...)
			}
			refused(t, out, want...)
		})
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestBadCommandLine: a missing file and a bad override say what to do.
func TestBadCommandLine(t *testing.T) {
	t.Parallel()
	refused(t, serve(t, filepath.Join(t.TempDir(), "nothing.properties")), "nothing.properties", "no such file")
	n := testnode.New(t, testnode.Options{})
	refused(t, serve(t, n.Properties(), "--override", "num.partitions=none"), "override", "num.partitions", "none")
	refused(t, serve(t, n.Properties(), "--override", "num.partitions"), "num.partitions")
	refused(t, serve(t, n.Properties(), "--log-level", "loud"), "loud", "debug")
}

// TestNotFormatted: directories that nobody formatted are not taken into use.
func TestNotFormatted(t *testing.T) {
	t.Parallel()
	n := testnode.New(t, testnode.Options{})
	if err := os.Remove(filepath.Join(n.LogDirs[0], "meta.properties")); err != nil {
		t.Fatal(err)
	}
	refused(t, serve(t, n.Properties()), n.LogDirs[0], "storage format")
}

// TestDirectoryInUse: a second process on the same directory is refused, and the first does not notice.
func TestDirectoryInUse(t *testing.T) {
	t.Parallel()
	n, second := testnode.New(t, testnode.Options{}), testnode.New(t, testnode.Options{})
	n.Start(t)
	second.SetProp(t, "log.dirs", n.LogDirs[0])
	refused(t, serve(t, second.Properties()), n.LogDirs[0], "in use")
	createTopic(t, n, "still-here", 1, nil)
	n.Stop(t)
	second.Start(t) // the lock went with the process
	second.Kill(t)
	second.Start(t)
	second.Stop(t)
}

// TestWrongIdentity: a directory of another node or cluster is refused, with both values and the directory.
func TestWrongIdentity(t *testing.T) {
	t.Parallel()
	n := testnode.New(t, testnode.Options{LogDirs: 2})
	meta := func(dir int) string { return filepath.Join(n.LogDirs[dir], "meta.properties") }
	good := read(t, meta(1))

	const other = "AAAAAAAAAAAAAAAAAAAAAQ"
	write(t, meta(1), strings.Replace(good, testnode.ClusterID, other, 1))
	refused(t, serve(t, n.Properties()), testnode.ClusterID, other, n.LogDirs[1])

	write(t, meta(1), strings.Replace(good, "node.id=1", "node.id=7", 1))
	refused(t, serve(t, n.Properties()), "7", "1", n.LogDirs[1], "node.id")

	write(t, meta(1), strings.Replace(good, "version=1", "version=9", 1))
	refused(t, serve(t, n.Properties()), meta(1), "version", "9")

	first := regexp.MustCompile(`directory\.id=.*`).FindString(read(t, meta(0)))
	write(t, meta(1), regexp.MustCompile(`directory\.id=.*`).ReplaceAllString(good, first))
	refused(t, serve(t, n.Properties()), n.LogDirs[0], n.LogDirs[1], "directory.id")

	write(t, meta(1), good)
	n.Start(t)
	n.Stop(t)
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestPortInUse: the message names the listener and its address, and the directory is free again at once.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	n := testnode.New(t, testnode.Options{})
	taken, err := net.Listen("tcp", n.Addr)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, serve(t, n.Properties()), "PLAINTEXT", n.Addr, "in use")
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	n.Start(t)
	n.Stop(t)
}

// TestStopWhileStarting: SIGTERM before the node is up ends it as well.
func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	n := testnode.New(t, testnode.Options{})
	for i := range testnode.Rounds(4, 30) {
		n.Launch(t)
		testnode.Until(t, 20*time.Second, "the first line of the log", func() error {
			if want := strings.Count(n.LogText(t), "loading logs"); want < i+1 {
				return fmt.Errorf("%d starts", want)
			}
			return nil
		})
		n.Stop(t)
	}
	n.Start(t)
	n.Stop(t)
}
