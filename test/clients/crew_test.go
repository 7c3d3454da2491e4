package clients

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/test/testnode"
)

// A crew is one client library at work on one topic: a producer and members of one consumer group. The programs in
// testdata are told what to do line by line on standard input and tell line by line what happened:
//
//	send FROM TO        → sent TO, when the numbers from FROM to before TO, each key and value of one record, are acknowledged
//	join NAME [K=V…]    → NAME assigned P,P… at every change (- for none), NAME record P OFFSET VALUE for every record,
//	                      after which the member commits
//	leave NAME          → NAME left, when the member has left in good order
//	extra               → extra ok, when what only this library does was done and found right
//	(end of input)      the program ends with exit code 0
//
// kcat, which takes no orders, is wrapped to do the same (kcatCrew). A crew is safe for use by several goroutines, but its
// test's methods (those that may fail it) belong to the test's goroutine.
type crew struct {
	t     *testing.T
	n     *testnode.Node
	topic string
	group string
	hands hands

	mu       sync.Mutex
	err      error                    // the program is of no more use
	sent     int                      // of the last answer to send
	extra    bool                     // extra was answered
	assigned map[string][]int32       // members that have not left: what they hold
	history  map[string][]string      // every assignment of every member, as text
	read     map[int32]map[int64]read // by partition and offset
	again    int                      // records that came more than once
	told     bytes.Buffer             // standard error of all processes
}

// read is a record as members saw it.
type read struct {
	value int
	by    []string
}

// hands does the work of a crew. Errors arrive by crew.fail, answers by crew.hear.
type hands interface {
	send(from, to int)
	join(name, options string)
	leave(name string)
	extras()
	end()
}

func newCrew(t *testing.T, n *testnode.Node, topic, group string) *crew {
	return &crew{t: t, n: n, topic: topic, group: group,
		assigned: map[string][]int32{}, history: map[string][]string{}, read: map[int32]map[int64]read{}}
}

// hear takes one line of a program.
func (c *crew) hear(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := strings.Fields(line)
	switch {
	case len(w) == 2 && w[0] == "sent":
		n, err := strconv.Atoi(w[1])
		c.sent, c.err = n, errors.Join(c.err, err)
	case len(w) == 2 && w[0] == "extra" && w[1] == "ok":
		c.extra = true
	case len(w) == 2 && w[1] == "left":
		delete(c.assigned, w[0])
	case len(w) == 3 && w[1] == "assigned":
		c.holds(w[0], w[2])
	case len(w) == 5 && w[1] == "record":
		c.record(w)
	default:
		c.err = errors.Join(c.err, fmt.Errorf("the client says %q", line))
	}
}

// holds notes an assignment. c.mu is held.
func (c *crew) holds(name, list string) {
	var partitions []int32
	if list != "-" {
		for p := range strings.SplitSeq(list, ",") {
			n, err := strconv.ParseInt(p, 10, 32)
			c.err = errors.Join(c.err, err)
			partitions = append(partitions, int32(n))
		}
	}
	slices.Sort(partitions)
	c.assigned[name] = partitions
	c.history[name] = append(c.history[name], fmt.Sprint(partitions))
}

// record notes one record: NAME record PARTITION OFFSET VALUE. c.mu is held.
func (c *crew) record(w []string) {
	partition, err1 := strconv.ParseInt(w[2], 10, 32)
	offset, err2 := strconv.ParseInt(w[3], 10, 64)
	value, err3 := strconv.Atoi(w[4])
	if err := errors.Join(err1, err2, err3); err != nil {
		c.err = errors.Join(c.err, err)
		return
	}
	all := c.read[int32(partition)]
	if all == nil {
		all = map[int64]read{}
		c.read[int32(partition)] = all
	}
	r, was := all[offset]
	if was {
		c.again++
		if r.value != value {
			c.err = errors.Join(c.err, fmt.Errorf("partition %d offset %d holds %d, and then %d", partition, offset, r.value, value))
		}
	}
	all[offset] = read{value, append(r.by, w[0])}
}

func (c *crew) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = errors.Join(c.err, err)
}

// crewPatience is the limit of every wait for a client. It is longer than any session or rebalance timeout in the scripts.
const crewPatience = 60 * time.Second

// await waits until done is nil. done is called with c.mu held.
func (c *crew) await(what string, done func() error) {
	c.t.Helper()
	deadline := time.NewTimer(crewPatience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		c.mu.Lock()
		err, broken := done(), c.err
		c.mu.Unlock()
		if broken != nil {
			c.t.Fatalf("%s: %v%s", what, broken, c.state())
		}
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			c.t.Fatalf("%s: not within %v: %v%s", what, crewPatience, err, c.state())
		}
	}
}

// state is what is known of the crew, for the text of a failure.
func (c *crew) state() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	told := strings.Split(strings.TrimSpace(c.told.String()), "\n")
	return fmt.Sprintf("\nassigned: %v\nassignments so far: %v\nthe client's last words:\n%s",
		c.assigned, c.history, strings.Join(told[max(0, len(told)-40):], "\n"))
}

// send has the numbers below to, from the last one on, produced.
func (c *crew) send(to int) {
	c.t.Helper()
	c.mu.Lock()
	from := c.sent
	c.mu.Unlock()
	c.hands.send(from, to)
	c.await("produce", func() error {
		if c.sent != to {
			return fmt.Errorf("sent %d of %d", c.sent, to)
		}
		return nil
	})
}

// join starts a member and returns at once.
func (c *crew) join(name, options string) { c.hands.join(name, options) }

// leave ends a member and waits until it has left.
func (c *crew) leave(name string) {
	c.t.Helper()
	c.hands.leave(name)
	c.await(name+" leaves", func() error {
		if p, is := c.assigned[name]; is {
			return fmt.Errorf("%s still holds %v", name, p)
		}
		return nil
	})
}

// extras runs what only this library does.
func (c *crew) extras() {
	c.t.Helper()
	c.hands.extras()
	c.await("extra", func() error {
		if !c.extra {
			return errors.New("no answer")
		}
		return nil
	})
}

// awaitShares waits until these members, and no others, hold all partitions, each its fair share.
func (c *crew) awaitShares(partitions int, members ...string) {
	c.t.Helper()
	c.await(fmt.Sprintf("%d partitions are shared by %v", partitions, members), func() error {
		if len(c.assigned) != len(members) {
			return fmt.Errorf("members %v", c.assigned)
		}
		held := map[int32]bool{}
		for _, m := range members {
			for _, p := range c.assigned[m] {
				if held[p] {
					return fmt.Errorf("partition %d is held twice", p)
				}
				held[p] = true
			}
			if n := len(c.assigned[m]); n < partitions/len(members) || n > (partitions+len(members)-1)/len(members) {
				return fmt.Errorf("%s holds %d", m, n)
			}
		}
		if len(held) != partitions {
			return fmt.Errorf("%d are held", len(held))
		}
		return nil
	})
}

// awaitRecords waits until every number that was sent has been read.
func (c *crew) awaitRecords() {
	c.t.Helper()
	c.await("all records", func() error {
		n := 0
		for _, all := range c.read {
			n += len(all)
		}
		if n < c.sent {
			return fmt.Errorf("%d of %d", n, c.sent)
		}
		return nil
	})
}

// check fails unless exactly what was sent was read: no number twice in the log, none missing, no offset left out, and each
// partition in the order of sending.
func (c *crew) check() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	values := map[int]bool{}
	for partition, all := range c.read {
		last := -1
		for offset := range int64(len(all)) {
			r, is := all[offset]
			switch {
			case !is:
				c.t.Fatalf("partition %d: offset %d was never read", partition, offset)
			case values[r.value]:
				c.t.Fatalf("partition %d offset %d: %d is in the log twice", partition, offset, r.value)
			case r.value <= last:
				c.t.Fatalf("partition %d offset %d: %d after %d", partition, offset, r.value, last)
			}
			values[r.value], last = true, r.value
		}
	}
	if len(values) != c.sent {
		c.t.Fatalf("%d numbers were sent and %d read", c.sent, len(values))
	}
}

// program is a crew's hands: one process that does everything.
type program struct {
	c     *crew
	stdin io.WriteCloser
	gone  chan struct{}
	cmd   *exec.Cmd
}

// startProgram starts a program of testdata; the address, topic and group are appended to its arguments.
func startProgram(t *testing.T, n *testnode.Node, topic, group string, cmd *exec.Cmd) *crew {
	t.Helper()
	c := newCrew(t, n, topic, group)
	cmd.Args = append(cmd.Args, n.Addr, topic, group)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{c: c, stdin: stdin, cmd: cmd}
	p.gone = c.run(cmd, c.hear, c.grumble, func(err error) {
		if err != nil {
			c.fail(fmt.Errorf("%s: %w", cmd.Path, err))
		}
	})
	c.hands = p
	t.Cleanup(func() { c.hands.end() })
	return c
}

// grumble keeps a line of standard error.
func (c *crew) grumble(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintln(&c.told, line)
}

// run starts a process that ends with the test's, and hands on what it writes. The channel is closed when it has ended and
// all lines were handed on; ended is called just before, with the error of a bad end. A process that cannot be started fails
// the crew.
func (c *crew) run(cmd *exec.Cmd, stdout, stderr func(line string), ended func(error)) chan struct{} {
	gone := make(chan struct{})
	out, err1 := cmd.StdoutPipe()
	errs, err2 := cmd.StderrPipe()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := errors.Join(err1, err2)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.fail(err)
		close(gone)
		return gone
	}
	var readers sync.WaitGroup
	for pipe, each := range map[io.Reader]func(string){out: stdout, errs: stderr} {
		readers.Go(func() {
			lines := bufio.NewScanner(pipe)
			for lines.Scan() {
				each(lines.Text())
			}
			if err := lines.Err(); err != nil {
				c.fail(err)
			}
		})
	}
	go func() {
		readers.Wait()
		ended(cmd.Wait())
		close(gone)
	}()
	return gone
}

func (p *program) tell(format string, args ...any) {
	if _, err := fmt.Fprintf(p.stdin, format+"\n", args...); err != nil {
		p.c.fail(err)
	}
}

func (p *program) send(from, to int) { p.tell("send %d %d", from, to) }
func (p *program) join(name, options string) {
	p.tell("%s", strings.TrimSpace("join "+name+" "+options))
}
func (p *program) leave(name string) { p.tell("leave %s", name) }
func (p *program) extras()           { p.tell("extra") }

// end closes the program's input and waits for its end, which must be a good one unless the test has failed.
func (p *program) end() {
	if err := p.stdin.Close(); err != nil {
		p.c.fail(err)
	}
	limit := time.NewTimer(crewPatience)
	defer limit.Stop()
	if p.cmd.Process != nil && p.c.t.Failed() {
		_ = p.cmd.Process.Kill() // fails only when it has ended
	}
	select {
	case <-p.gone:
	case <-limit.C:
		_ = p.cmd.Process.Kill()
		<-p.gone
		p.c.fail(fmt.Errorf("the client does not end within %v after the end of its input", crewPatience))
	}
	p.c.mu.Lock()
	err := p.c.err
	p.c.mu.Unlock()
	if err != nil && !p.c.t.Failed() {
		p.c.t.Errorf("%v%s", err, p.c.state())
	}
}
