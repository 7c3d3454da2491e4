package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"weir/internal/broker"
	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/image"
	"weir/internal/loggers"
	"weir/internal/storage/dirs"
)

// defaultProperties is the node that `weir server` starts without a file.
const defaultProperties = `process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:9093
log.dirs=weir-data
`

type serverFlags struct {
	overrides []string
	logLevel  string
	logFormat string
}

func serverCommand() *cobra.Command {
	var f serverFlags
	c := &cobra.Command{
		Use:   "server [server.properties]",
		Short: "Run a node: broker and controller",
		Long: `Run a node: broker and controller.

Without a file the node listens on 127.0.0.1:9092 (controller: 9093) and keeps
its data in ./weir-data, which it formats by itself. With a file, a
server.properties as Apache Kafka's, the log directories must have been
formatted: weir storage format --help.

The log goes to standard error. SIGINT and SIGTERM stop the node in good order,
a second one at once.`,
		Example: `  weir server
  weir server --override log.dirs=/var/lib/weir
  weir server /etc/weir/server.properties --log-level debug`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("one properties file at most, not %s; a single key is set by --override key=value", strings.Join(args, " "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runServer(cmd.Context(), f, args) },
	}
	c.Flags().StringArrayVar(&f.overrides, "override", nil, "set one key of server.properties: key=value (repeatable)")
	c.Flags().StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error; of single parts, while the node runs: kafka-configs --entity-type broker-loggers")
	c.Flags().StringVar(&f.logFormat, "log-format", "text", "text or json")
	return c
}

func runServer(ctx context.Context, f serverFlags, args []string) error {
	defer keepSpareHeap()()
	logs, err := newLoggers(f.logLevel, f.logFormat)
	if err != nil {
		return err
	}
	logger := logs.Logger(loggers.Root)
	static, node, err := readConfig(f, args, logger)
	if err != nil {
		return err
	}
	fsys := openDisk()
	if len(args) == 0 {
		if err := formatFresh(fsys, node, logger); err != nil {
			return err
		}
	}
	signals, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	start := time.Now()
	b, err := broker.Start(signals, broker.Options{
		Static: static, Node: node, FS: fsys, Clock: clock.System{}, Loggers: logs, OpenFiles: openFiles(),
	})
	if err != nil {
		if signals.Err() != nil {
			return nil // asked to stop before it was up
		}
		return advise(err, args)
	}
	logger.Info("serving", "node", node.NodeID, "cluster", b.ClusterID(), "listeners", addresses(b.Addresses()), "took", time.Since(start).Round(time.Millisecond))
	if len(args) == 0 {
		greet(b.Addresses())
	}
	select {
	case <-signals.Done():
		logger.Info("stopping")
	case <-b.Failed():
	}
	stop() // a second signal ends the process at once
	leave, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := b.Shutdown(leave); err != nil {
		return err
	}
	logger.Info("stopped")
	return nil
}

// advise adds the command that helps, where there is one.
func advise(err error, args []string) error {
	var unformatted *dirs.NotFormattedError
	if errors.As(err, &unformatted) && len(args) == 1 {
		return fmt.Errorf("%w\na new cluster of one node: weir storage format -c %s -t $(weir storage random-uuid) --standalone", err, args[0])
	}
	return err
}

// stopTimeout is how long a node tries to leave in good order.
const stopTimeout = 60 * time.Second

func newLoggers(level, format string) (*loggers.Set, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: use debug, info, warn or error", level)
	}
	o := &slog.HandlerOptions{Level: loggers.Everything}
	switch format {
	case "text":
		return loggers.New(slog.NewTextHandler(os.Stderr, o), l), nil
	case "json":
		return loggers.New(slog.NewJSONHandler(os.Stderr, o), l), nil
	}
	return nil, fmt.Errorf("--log-format %q: use text or json", format)
}

// readConfig reads the file, or the defaults, and says what is odd about it.
func readConfig(f serverFlags, args []string, logger *slog.Logger) (*config.Static, *config.Node, error) {
	name, text := "defaults", []byte(defaultProperties)
	if len(args) == 1 {
		var err error
		name = args[0]
		if text, err = os.ReadFile(name); errors.Is(err, fs.ErrNotExist) {
			return nil, nil, fmt.Errorf("%s: no such file; run `weir server` without one for a node with defaults", name)
		} else if err != nil {
			return nil, nil, err
		}
	}
	static, warnings, err := config.Load(name, text, f.overrides)
	if err != nil {
		return nil, nil, err
	}
	for _, w := range warnings {
		logger.Warn(w.String())
	}
	node, err := static.Node()
	if err == nil {
		err = absolute(node)
	}
	return static, node, err
}

// absolute makes the paths of the directories absolute: clients are told where
// logs lie (kafka-log-dirs) and name directories by the same path.
func absolute(node *config.Node) (err error) {
	for i, dir := range node.LogDirs {
		if node.LogDirs[i], err = filepath.Abs(dir); err != nil {
			return err
		}
	}
	node.MetadataDir, err = filepath.Abs(node.MetadataDir)
	return err
}

// openFiles is how many log files may be open at once: most of what the system
// allows, the rest is for connections.
func openFiles() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil || r.Cur > 1<<20 {
		return 1 << 19
	}
	return int(r.Cur) / 2
}

func addresses(list []image.Endpoint) string {
	var out []string
	for _, e := range list {
		out = append(out, fmt.Sprintf("%s://%s", e.Name, hostPort(e)))
	}
	return strings.Join(out, ",")
}

func hostPort(e image.Endpoint) string {
	if strings.Contains(e.Host, ":") {
		return fmt.Sprintf("[%s]:%d", e.Host, e.Port)
	}
	return fmt.Sprintf("%s:%d", e.Host, e.Port)
}

// greet tells a newcomer what to do next.
func greet(list []image.Endpoint) {
	if len(list) == 0 {
		return
	}
	at := hostPort(list[0])
	fmt.Printf(`
Weir is ready on %[1]s. Try:

  echo hello | kcat -b %[1]s -t greetings -P
  kcat -b %[1]s -t greetings -C -e

Any Kafka client works: bootstrap.servers=%[1]s. Ctrl-C stops it; the data stays.

`, at)
}
