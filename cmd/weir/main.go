// Weir is Apache Kafka's job done by one static binary.
//
//	weir server [server.properties]   a node
//	weir demo                         a cluster on this machine, to play with
//	weir storage …                    formats log directories, as kafka-storage
//
// Under the name of one of Kafka's tools (kafka-storage, kafka-storage.sh) it is
// that tool.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/rng"
	"weir/internal/tool/storage"
	"weir/internal/vfs"
)

// version is set by the linker.
var version = "dev" // lint: the linker can set nothing but a package variable

func main() {
	if tool, ok := toolName(os.Args[0]); ok {
		os.Exit(tool(filepath.Base(os.Args[0]), os.Args[1:]))
	}
	root := &cobra.Command{
		Use:           "weir",
		Short:         "Apache Kafka's job done by one static binary",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(serverCommand(), demoCommand(), toolCommand("storage", "Format log directories, or tell about them, as kafka-storage", runStorage))
	if err := root.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "weir:", err)
		os.Exit(1)
	}
}

// tool is one of Kafka's command-line tools: it gets the name it was called by
// and its arguments, and returns the exit code.
type tool func(name string, args []string) int

// toolName is the tool that the binary was called as: kafka-storage or
// kafka-storage.sh.
func toolName(argv0 string) (tool, bool) {
	switch strings.TrimSuffix(filepath.Base(argv0), ".sh") {
	case "kafka-storage":
		return runStorage, true
	}
	return nil, false
}

// toolCommand makes a tool a sub-command. Its flags are Kafka's: cobra leaves
// them alone.
func toolCommand(name, short string, run tool) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Short:              short,
		DisableFlagParsing: true,
		Run:                func(_ *cobra.Command, args []string) { os.Exit(run("weir "+name, args)) },
	}
}

func runStorage(name string, args []string) int {
	return storage.Run(storage.Env{
		Name: name, FS: vfs.OS(), Now: time.Now, Rand: rng.System(), Stdout: os.Stdout, Stderr: os.Stderr,
	}, args)
}
