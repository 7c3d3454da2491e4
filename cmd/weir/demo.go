package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"weir/internal/tool/demo"
)

func demoCommand() *cobra.Command {
	o := demo.Options{In: os.Stdin, Out: os.Stdout}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "A replicated cluster on this machine, to play with: kill a node and watch",
		Long: `Starts a cluster of nodes on 127.0.0.1, each a process of its own, creates a topic
that all of them replicate, writes to it and reads it, and shows who leads what.

Type k 2 to kill node 2 (really), s 2 to start it again, q to end. The data is in
a temporary directory, removed at the end, unless --data says otherwise.`,
		Example: "  weir demo\n  weir demo --nodes 5 --data ./demo-data",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			o.Exe = exe
			info, err := os.Stdout.Stat()
			o.Screen = err == nil && info.Mode()&os.ModeCharDevice != 0
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return demo.Run(ctx, o)
		},
	}
	cmd.Flags().IntVar(&o.Nodes, "nodes", 3, "how many nodes")
	cmd.Flags().StringVar(&o.Dir, "data", "", "where the data goes (default: a temporary directory, removed at the end)")
	cmd.Flags().IntVar(&o.Rate, "rate", 1000, "records per second")
	return cmd
}
