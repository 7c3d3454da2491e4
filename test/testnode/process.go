package testnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Limits of waiting; two busy cores must not reach them.
const (
	startLimit = 90 * time.Second
	stopLimit  = 60 * time.Second
)

const sigKill = syscall.SIGKILL

// process is one run of a node.
type process struct {
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has ended; cmd.ProcessState is set then
}

func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) } // fails only for a process that has ended

func (p *process) ended() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// Start starts the node and waits until it answers as a member of its cluster that is not fenced. args are appended to
// Weir's command line (after the properties file).
func (n *Node) Start(t testing.TB, args ...string) {
	t.Helper()
	n.Launch(t, args...)
	n.WaitReady(t)
}

// Launch starts the node and does not wait.
func (n *Node) Launch(t testing.TB, args ...string) {
	t.Helper()
	if n.Running() {
		t.Fatal("testnode: the node runs already")
	}
	var cmd *exec.Cmd
	switch n.system {
	case Ours:
		cmd = exec.Command(n.binary, append([]string{"server", n.Properties()}, args...)...)
		if n.faulty {
			cmd.Env = append(os.Environ(), "WEIR_FAULTS="+n.faultsFile())
		}
	case Apache:
		cmd = exec.Command(Oracle(t), "kafka-server-start", n.Properties())
		if n.stock {
			cmd.Env = append(os.Environ(), "KAFKA_FAST=")
			if n.heap != "" {
				cmd.Env = append(cmd.Env, "KAFKA_HEAP="+n.heap)
			}
		} else {
			cmd.Env = oracleEnv("-Xmx512m -Xms128m") // the cleaner alone has 128 MiB, twice while it is reconfigured
		}
	}
	log, err := os.OpenFile(n.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	n.started++
	fmt.Fprintf(log, "==== start %d: %s\n", n.started, strings.Join(cmd.Args, " "))
	cmd.Dir, cmd.Stdout, cmd.Stderr = n.Dir, log, log
	// The node goes when the test process goes, also when that is killed for taking too long.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if n.net != nil {
		if err := n.net.up(n); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(cmd.Start(), log.Close()); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, gone: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in ProcessState
		close(p.gone)
	}()
	n.proc = p
	if n.net != nil {
		n.net.follow(n.ID, cmd.Process.Pid, p.gone)
	}
}

// WaitReady waits until a launched node answers as a member of its cluster that is not fenced; a controller alone, until it listens.
func (n *Node) WaitReady(t testing.TB) {
	t.Helper()
	if err := until(startLimit, n.ready); err != nil {
		t.Fatalf("%s node %d does not get ready: %v\n%s", n.system, n.ID, err, n.LogTail(40))
	}
}

func (n *Node) ready() error {
	if n.proc == nil || n.proc.ended() {
		return &goneError{n.how()}
	}
	address := n.Addr
	if n.roles == ControllerOnly {
		address = n.Controller
	}
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return err
	}
	if err := conn.Close(); err != nil || n.roles == ControllerOnly {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(n.Addr), kgo.RequestRetries(0))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	brokers, err := kadm.NewClient(client).ListBrokers(ctx)
	if err != nil {
		return err
	}
	for _, b := range brokers {
		if b.NodeID == n.ID {
			return nil
		}
	}
	return fmt.Errorf("node %d is not among the brokers %v", n.ID, brokers.NodeIDs())
}

func (n *Node) how() string {
	if n.proc == nil {
		return "it was never started"
	}
	return n.proc.cmd.ProcessState.String()
}

// Running tells whether the node's process is there.
func (n *Node) Running() bool { return n.proc != nil && !n.proc.ended() }

// Gone is closed when the node's last process has ended.
func (n *Node) Gone() <-chan struct{} { return n.proc.gone }

// ExitCode is how the last process ended; -1 by a signal. It waits for the end.
func (n *Node) ExitCode() int {
	<-n.proc.gone
	return n.proc.cmd.ProcessState.ExitCode()
}

// PID is the process id of the node.
func (n *Node) PID() int { return n.proc.cmd.Process.Pid }

// Signal sends a signal, for instance SIGSTOP and SIGCONT.
func (n *Node) Signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := n.proc.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// Pause stops the process where it is (SIGSTOP) and returns when none of its threads runs any more, which the signal alone
// does not promise on a busy machine. Signal with SIGCONT lets it go on.
func (n *Node) Pause(t testing.TB) {
	t.Helper()
	n.Signal(t, syscall.SIGSTOP)
	Until(t, Patience, fmt.Sprintf("node %d stands still", n.ID), func() error {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", n.PID()))
		if err != nil {
			return err
		}
		for _, task := range tasks {
			text, err := os.ReadFile(task)
			if err != nil {
				continue // the thread has ended
			}
			if _, state, _ := strings.Cut(string(text), ") "); !strings.HasPrefix(state, "T") {
				return fmt.Errorf("%s: %.1s", task, state)
			}
		}
		return nil
	})
}

// Stop ends the node in good order (SIGTERM) and fails the test when it does not end, or not with exit code 0 (Weir) or
// 143 (Java).
func (n *Node) Stop(t testing.TB) {
	t.Helper()
	n.Signal(t, syscall.SIGTERM)
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case <-n.proc.gone:
	case <-limit.C:
		n.proc.signal(syscall.SIGQUIT) // both systems answer with all stacks
		n.Kill(t)
		t.Fatalf("%s node %d does not stop within %v\n%s", n.system, n.ID, stopLimit, n.LogTail(200))
	}
	if code := n.ExitCode(); code != 0 && (n.system != Apache || code != 143) {
		t.Fatalf("%s node %d stopped with exit code %d\n%s", n.system, n.ID, code, n.LogTail(40))
	}
}

// Kill ends the node with kill -9.
func (n *Node) Kill(t testing.TB) {
	t.Helper()
	n.Signal(t, sigKill)
	<-n.proc.gone
}

// Restart is Stop and Start.
func (n *Node) Restart(t testing.TB) {
	t.Helper()
	n.Stop(t)
	n.Start(t)
}

// Client is a client of the node, closed at the end of the test.
func (n *Node) Client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(n.Addr)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Admin is an admin client of the node, closed at the end of the test.
func (n *Node) Admin(t testing.TB) *kadm.Client {
	t.Helper()
	return kadm.NewClient(n.Client(t))
}

// Tool runs one of Apache Kafka's tools with --bootstrap-server of the node in front of args.
func (n *Node) Tool(t testing.TB, stdin string, tool string, args ...string) Output {
	t.Helper()
	return Tool(t, stdin, tool, append([]string{"--bootstrap-server", n.Addr}, args...)...)
}

// WaitLeaders waits until every partition has a leader, as it has soon after a start.
func (n *Node) WaitLeaders(t testing.TB) {
	t.Helper()
	adm := n.Admin(t)
	Until(t, 30*time.Second, "leaders of all partitions", func() error {
		topics, err := adm.ListTopicsWithInternal(t.Context())
		if err != nil {
			return err
		}
		for _, topic := range topics {
			for _, p := range topic.Partitions {
				if p.Err != nil || p.Leader < 0 {
					return fmt.Errorf("%s-%d: leader %d: %w", topic.Topic, p.Partition, p.Leader, errors.Join(p.Err, topic.Err))
				}
			}
		}
		return nil
	})
}
