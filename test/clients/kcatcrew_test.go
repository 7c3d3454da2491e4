package clients

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"weir/test/testnode"
)

// kcatCrew is a crew of kcat: a process for every member and for every send. kcat commits by itself what it has printed.
type kcatCrew struct {
	c       *crew
	options []string

	mu      sync.Mutex
	members map[string]*kcatMember
}

type kcatMember struct {
	cmd  *exec.Cmd
	gone chan struct{}
	held []string
}

func startKcat(t *testing.T, n *testnode.Node, topic, group string, options ...string) *crew {
	t.Helper()
	if _, err := exec.LookPath("kcat"); err != nil {
		unavailable(t, "kcat is missing: apt-get install kcat")
	}
	c := newCrew(t, n, topic, group)
	c.hands = &kcatCrew{c: c, options: options, members: map[string]*kcatMember{}}
	t.Cleanup(func() { c.hands.end() })
	return c
}

func (k *kcatCrew) send(from, to int) {
	var in bytes.Buffer
	for i := from; i < to; i++ {
		fmt.Fprintf(&in, "%d:%d\n", i, i)
	}
	kcat(k.c.t, k.c.n, in.Bytes(), "-P", "-t", k.c.topic, "-K", ":", "-X", "enable.idempotence=true")
	k.c.hear(fmt.Sprintf("sent %d", to))
}

// kcatRebalance is what kcat says on standard error of every rebalance.
var kcatRebalance = regexp.MustCompile(`^% Group .* rebalanced.*\b(assign|revo)(.*)$`)

var kcatPartition = regexp.MustCompile(`\[(\d+)\]`)

func (k *kcatCrew) join(name, _ string) {
	args := append([]string{"-b", k.c.n.Addr, "-G", k.c.group, "-u", "-f", name + " record %p %o %s\n",
		"-X", "auto.offset.reset=earliest", "-X", "fetch.wait.max.ms=50",
		"-X", "session.timeout.ms=6000", "-X", "heartbeat.interval.ms=300"}, k.options...)
	m := &kcatMember{cmd: exec.Command("kcat", append(args, k.c.topic)...)}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.members[name] = m
	m.gone = k.c.run(m.cmd, k.c.hear, func(line string) {
		k.c.grumble(name + ": " + line)
		if found := kcatRebalance.FindStringSubmatch(line); found != nil {
			m.rebalanced(k, name, found[1] == "assign", kcatPartition.FindAllStringSubmatch(found[2], -1))
		}
	}, func(err error) { k.ended(name, m, err) })
}

// ended starts a member again that has ended because the node is away: kcat does not wait for it.
func (k *kcatCrew) ended(name string, m *kcatMember, err error) {
	k.mu.Lock()
	stays := k.members[name] == m
	k.mu.Unlock()
	switch {
	case stays:
		k.c.hear(name + " assigned -")
		k.join(name, "")
	case err != nil:
		k.c.fail(fmt.Errorf("kcat %s: %w", name, err))
	}
}

// rebalanced notes what was gained or lost; it runs in the goroutine that reads the member's standard error.
func (m *kcatMember) rebalanced(k *kcatCrew, name string, gained bool, partitions [][]string) {
	k.mu.Lock()
	stays := k.members[name] == m
	k.mu.Unlock()
	if !stays {
		return // the goodbye
	}
	left := map[string]bool{}
	for _, p := range m.held {
		left[p] = true
	}
	for _, p := range partitions {
		left[p[1]] = gained
	}
	m.held = nil
	for p, held := range left {
		if held {
			m.held = append(m.held, p)
		}
	}
	list := "-"
	if m.held != nil {
		list = strings.Join(m.held, ",")
	}
	k.c.hear(name + " assigned " + list)
}

func (k *kcatCrew) leave(name string) {
	k.mu.Lock()
	m := k.members[name]
	delete(k.members, name)
	k.mu.Unlock()
	if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		k.c.fail(err)
		return
	}
	<-m.gone
	k.c.hear(name + " left")
}

func (k *kcatCrew) extras() { k.c.fail(errors.New("kcat has no extras")) }

func (k *kcatCrew) end() {
	k.mu.Lock()
	members := k.members
	k.members = nil
	k.mu.Unlock()
	for _, m := range members {
		_ = m.cmd.Process.Kill() // fails only when it has ended
		<-m.gone
	}
}

// TestKcatGroup: kcat -G, with both kinds of rebalance.
func TestKcatGroup(t *testing.T) {
	together(t)
	for _, l := range []life{
		{protocol: "cooperative-sticky", cooperative: true, lateCommits: true},
		{protocol: "range", lateCommits: true},
	} {
		t.Run(l.protocol, func(t *testing.T) {
			if l.protocol == "range" && !testnode.Full() {
				t.Skip("WEIR_FULL=1 runs the other assignor")
			}
			bothSystems(t, func(t *testing.T, n *testnode.Node) {
				startKcat(t, n, "kcat", "kcat-"+l.protocol, "-X", "partition.assignment.strategy="+l.protocol).live(l)
			})
		})
	}
}
