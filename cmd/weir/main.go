// Weir is Apache Kafka's job done by one static binary.
//
//	weir server [server.properties]   a node
//	weir storage …                    formats log directories, as kafka-storage
//
// Under the name of one of Kafka's tools (kafka-storage, kafka-storage.sh) it is
// that tool.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "dev"

func main() {
	root := &cobra.Command{
		Use:           "weir",
		Short:         "Apache Kafka's job done by one static binary",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(serverCommand())
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "weir:", err)
		os.Exit(1)
	}
}

// toolName is the Kafka tool that the binary was called as, "" when none.
func toolName(argv0 string) string {
	name := strings.TrimSuffix(filepath.Base(argv0), ".sh")
	if tool, ok := strings.CutPrefix(name, "kafka-"); ok {
		return tool
	}
	return ""
}
