//go:build interop

package storage

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/internal/rng"
	"weir/internal/vfs"
)

// kafka is the real Apache Kafka, from its jars in ORACLE_HOME or the default place.
type kafka struct {
	t    *testing.T
	home string
}

func findKafka(t *testing.T) kafka {
	home := os.Getenv("ORACLE_HOME")
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		home = filepath.Join(user, ".cache/kafka-oracle/4.3.1")
	}
	if _, err := os.Stat(filepath.Join(home, "libs")); err != nil {
		t.Fatalf("the jars of Apache Kafka are needed: %v", err)
	}
	return kafka{t, home}
}

func (k kafka) command(class string, args ...string) *exec.Cmd {
	java := []string{"-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Dlog4j2.configurationFile=" + k.home + "/log4j2.xml",
		"-Doracle.log=INFO", "-cp", k.home + "/libs/*"}
	if class != "kafka.Kafka" {
		java[5] = "-Doracle.log=OFF"
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	k.t.Cleanup(cancel)
	return exec.CommandContext(ctx, "java", append(append(java, class), args...)...)
}

func (k kafka) run(class string, args ...string) (code int, out, errs string) {
	k.t.Helper()
	cmd := k.command(class, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		k.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

func weir(args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	code = Run(Env{Name: "kafka-storage", FS: vfs.OS(), Now: time.Now, Rand: rng.System(), Stdout: &stdout, Stderr: &stderr}, args)
	return code, stdout.String(), stderr.String()
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// nodeConfig writes a server.properties for a node in dir.
func nodeConfig(t *testing.T, dir, quorum string) string {
	t.Helper()
	client, controller := freePort(t), freePort(t)
	text := fmt.Sprintf("process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"+
		"listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d\nlog.dirs=%s/a,%s/b\n%s%d\n", client, controller, dir, dir, quorum, controller)
	name := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

const (
	staticQuorum  = "controller.quorum.voters=1@127.0.0.1:"
	dynamicQuorum = "controller.quorum.bootstrap.servers=127.0.0.1:"
)

var (
	stackTrace = regexp.MustCompile(`(?m)^(\tat .*|Caused by: .*|\t\.\.\. .*)\n`)
	exception  = regexp.MustCompile(`(?m)^(Exception in thread "main" )?[a-z.]+\.[A-Za-z$]+(Exception|Error): `)
	directory  = regexp.MustCompile(`directory\.id=[\w-]+|Optional\[([\w-]+)\]`)
	spaces     = regexp.MustCompile(`\s+`)
	bootstrap  = regexp.MustCompile(`(?m)^Bootstrap metadata: .*\n`)
)

// plain takes out what may differ: stack traces, line breaks of the usage text, random ids, the finalized features.
func plain(s string) string {
	s = bootstrap.ReplaceAllString(stackTrace.ReplaceAllString(s, ""), "")
	s = directory.ReplaceAllString(exception.ReplaceAllString(s, ""), "ID")
	return strings.TrimSpace(spaces.ReplaceAllString(s, " "))
}

// The same command lines give the same output and exit code. Order of lines about directories is not compared.
func TestInteropCommandLines(t *testing.T) {
	k := findKafka(t)
	home := t.TempDir()
	for i, c := range []struct{ quorum, args string }{
		{staticQuorum, "info -c CONF"},
		{staticQuorum, "format -t ID -c CONF"},
		{staticQuorum, "format -t ID -c CONF --standalone"},
		{staticQuorum, "format -t ID -c CONF -f kraft.version=1"},
		{staticQuorum, "format -t ID -c CONF -r 3.0"},
		{staticQuorum, "format -t ID -c CONF -r 3.8"},
		{staticQuorum, "format -t ID -c CONF -f metadata.version=29"},
		{staticQuorum, "format -t ID -c CONF -f nope.version=1"},
		{staticQuorum, "format -t ID -c CONF -f group.version=9"},
		{staticQuorum, "format -t ID -c CONF -f eligible.leader.replicas.version=1 -r 3.9"},
		{staticQuorum, "format -t ID -c CONF -S SCRAM-SHA-256=[name=alice]"},
		{dynamicQuorum, "format -t ID -c CONF"},
		{dynamicQuorum, "format -t ID -c CONF -s"},
		{dynamicQuorum, "format -t ID -c CONF -s -N"},
		{dynamicQuorum, "format -t ID -c CONF -N"},
		{dynamicQuorum, "format -t ID -c CONF -N -f kraft.version=0"},
		{dynamicQuorum, "format -t ID -c CONF -I 1@localhost:19093:JEXY6aqzQY-32P5TStzaFg"},
		{dynamicQuorum, "format -t ID -c CONF -I 3@localhost:19093:JEXY6aqzQY-32P5TStzaFg"},
		{dynamicQuorum, "feature-dependencies -f eligible.leader.replicas.version=1 -f group.version=1"},
		{dynamicQuorum, "version-mapping"},
		{dynamicQuorum, "version-mapping -r 4.1"},
		{dynamicQuorum, "version-mapping -r bogus"},
		{dynamicQuorum, "nothing"},
	} {
		type result struct {
			code      int
			out, errs string
		}
		var results [2]result
		for side := range results {
			dir := filepath.Join(home, fmt.Sprint(i, "-", side))
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			args := strings.Fields(strings.NewReplacer("CONF", nodeConfig(t, dir, c.quorum), "ID", cluster).Replace(c.args))
			var r result
			if side == 0 {
				r.code, r.out, r.errs = k.run("kafka.tools.StorageTool", args...)
			} else {
				r.code, r.out, r.errs = weir(args...)
			}
			lines := strings.Split(bootstrap.ReplaceAllString(r.out, ""), "\n")
			if strings.HasPrefix(c.args, "format") {
				sortLines(lines)
			}
			r.out, r.errs = strings.ReplaceAll(plain(strings.Join(lines, "\n")), dir, "DIR"), strings.ReplaceAll(plain(r.errs), dir, "DIR")
			results[side] = r
		}
		if results[0] != results[1] {
			t.Errorf("%s\nApache Kafka: %+v\nours:         %+v", c.args, results[0], results[1])
		}
	}
}

// sortLines orders the lines about directories by what stands behind their kind.
func sortLines(lines []string) {
	for i := range lines {
		for j := i + 1; j < len(lines); j++ {
			a, b := strings.LastIndex(lines[i], "/"), strings.LastIndex(lines[j], "/")
			if a >= 0 && b >= 0 && lines[i][a:] > lines[j][b:] {
				lines[i], lines[j] = lines[j], lines[i]
			}
		}
	}
}

var changing = regexp.MustCompile(`CreateTime: \d+|crc: \d+|lastContainedLogTimestamp":\d+|voterDirectoryId":"[\w-]+"|Dumping \S+|"port":\d+`)

// kafka-dump-log reads our files as it reads Apache Kafka's, and sees the same in them when the same features are asked for.
func TestInteropFiles(t *testing.T) {
	k := findKafka(t)
	features := []string{"-f", "group.version=1", "-f", "share.version=1", "-f", "streams.version=1", "-f", "transaction.version=2"}
	var dumps [2]string
	for side := range dumps {
		dir := t.TempDir()
		args := append([]string{"format", "-s", "-t", cluster, "-c", nodeConfig(t, dir, dynamicQuorum)}, features...)
		code, out, errs := 0, "", ""
		if side == 0 {
			code, out, errs = k.run("kafka.tools.StorageTool", args...)
		} else {
			code, out, errs = weir(args...)
		}
		if code != 0 {
			t.Fatalf("exit %d\n%s%s", code, out, errs)
		}
		for _, file := range []string{"a/bootstrap.checkpoint", "b/bootstrap.checkpoint", "a/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"} {
			code, out, errs := k.run("org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", filepath.Join(dir, file))
			if code != 0 || strings.Contains(out, "isvalid: false") {
				t.Errorf("%s: exit %d\n%s%s", file, code, out, errs)
			}
			dumps[side] += changing.ReplaceAllString(out, "")
		}
	}
	if dumps[0] != dumps[1] {
		t.Errorf("Apache Kafka:\n%s\nours:\n%s", dumps[0], dumps[1])
	}
}

// Apache Kafka starts on directories that we formatted, with static voters and with dynamic ones.
func TestInteropApacheKafkaStarts(t *testing.T) {
	k := findKafka(t)
	for name, args := range map[string][]string{staticQuorum: nil, dynamicQuorum: {"--standalone"}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			conf := nodeConfig(t, dir, name)
			if code, out, errs := weir(append([]string{"format", "-t", cluster, "-c", conf}, args...)...); code != 0 {
				t.Fatalf("exit %d\n%s%s", code, out, errs)
			}
			k := kafka{t, k.home}
			cmd := k.command("kafka.Kafka", conf)
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var log strings.Builder
			started := false
			lines := bufio.NewScanner(stderr)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				log.WriteString(lines.Text() + "\n")
				if !started && strings.Contains(lines.Text(), "Kafka Server started") {
					started = true
					if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
						t.Error(err)
					}
				}
			}
			if err := cmd.Wait(); !started {
				t.Errorf("%v\n%s", err, log.String())
			}
		})
	}
}
