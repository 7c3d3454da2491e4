package clients

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Clients are installed on demand, each pinned to a version, into a folder that is kept. A client that cannot be had skips
// its tests, except in CI, whose script has installed all that is needed to get them.

// cacheDir is a folder below SUITES_HOME or the user's cache for one client.
func cacheDir(t *testing.T, name string) string {
	t.Helper()
	home := os.Getenv("SUITES_HOME")
	if home == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			unavailable(t, "no cache folder: %v", err)
		}
		home = dir
	}
	return filepath.Join(home, "weir-tests", name)
}

// unavailable skips the test, or fails it in CI.
func unavailable(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// installLimit ends an installation that hangs.
const installLimit = 5 * time.Minute

// installing keeps tests that run at the same time from installing the same.
var installing sync.Mutex

// install runs commands in a new folder, unless they have been run to a good end before, and returns the folder. The
// folder's name must tell the versions of all that goes into it.
func install(t *testing.T, name string, files map[string]string, commands ...[]string) string {
	t.Helper()
	installing.Lock()
	defer installing.Unlock()
	dir := cacheDir(t, name)
	complete := filepath.Join(dir, ".complete")
	if _, err := os.Stat(complete); err == nil {
		return dir
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), installLimit)
	defer cancel()
	for _, args := range commands {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			unavailable(t, "%s cannot be had: %v: %v\n%s", name, args, err, out)
		}
	}
	if err := os.WriteFile(complete, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// python is an interpreter that has these packages (NAME==VERSION), in a virtual environment of their own.
func python(t *testing.T, packages ...string) string {
	t.Helper()
	name := strings.ReplaceAll(strings.Join(packages, "+"), "==", "-")
	bin := filepath.Join(cacheDir(t, name), "bin", "python")
	install(t, name, nil,
		[]string{"python3", "-m", "venv", "."},
		append([]string{bin, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"}, packages...))
	return bin
}

// node is a Node.js command that finds one npm package.
func node(t *testing.T, script, name, version string) *exec.Cmd {
	t.Helper()
	dir := install(t, name+"-"+version, map[string]string{"package.json": "{}"},
		[]string{"npm", "install", "--silent", "--no-audit", "--no-fund", name + "@" + version})
	cmd := exec.Command("node", filepath.Join("testdata", script))
	cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(dir, "node_modules"))
	return cmd
}

const pom = `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>weir</groupId><artifactId>clients</artifactId><version>1</version><packaging>pom</packaging>
<dependencies><dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>%s</version></dependency></dependencies></project>
`

// javaClient is the program testdata/java with a version of kafka-clients. poll is the folder with the one class that differs.
func javaClient(t *testing.T, version, poll string, options ...string) *exec.Cmd {
	t.Helper()
	return javaProgram(t, version, "Crew", []string{"testdata/java/Crew.java", filepath.Join("testdata/java", poll, "Poll.java")}, options...)
}

// javaProgram compiles sources against a version of kafka-clients; the command runs one of their classes.
func javaProgram(t *testing.T, version, class string, sources []string, args ...string) *exec.Cmd {
	t.Helper()
	libs := install(t, "kafka-clients-"+version, map[string]string{"pom.xml": fmt.Sprintf(pom, version)},
		[]string{"mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=.", "-DincludeScope=runtime"})
	sum := sha256.New()
	compile := []string{"javac", "-nowarn", "-cp", filepath.Join(libs, "*"), "-d", "."}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(text)
		path, err := filepath.Abs(source)
		if err != nil {
			t.Fatal(err)
		}
		compile = append(compile, path)
	}
	classes := install(t, fmt.Sprintf("java-%s-%s-%x", strings.ToLower(class), version, sum.Sum(nil)[:6]), nil, compile)
	args = append([]string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", classes + ":" + filepath.Join(libs, "*"), class}, args...)
	return exec.Command("java", args...)
}

// goClient builds the program in a module of its own below testdata. Its go.sum pins the client.
func goClient(t *testing.T, module string) *exec.Cmd {
	t.Helper()
	bin := filepath.Join(t.TempDir(), module)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".")
	build.Dir = filepath.Join("testdata", module)
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		unavailable(t, "%s cannot be built: %v\n%s", module, err, out)
	}
	return exec.Command(bin)
}
