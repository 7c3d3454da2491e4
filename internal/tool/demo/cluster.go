package demo

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// firstPort is where node 1 listens if that is free, as a Kafka client expects.
const firstPort = 9092

// clusterID is as good as any: the cluster never meets another one.
const clusterID = "d2Vpci1kZW1vLWNsdXN0ZQ"

// stopTimeout is how long a node may take to leave in good order at the end.
const stopTimeout = 5 * time.Second

// cluster is the nodes' processes.
type cluster struct {
	exe   string
	nodes []*node

	mu sync.Mutex // guards the nodes' fields that change
}

type node struct {
	id, port, control int
	dir               string

	process *os.Process   // nil: not running
	gone    chan struct{} // closed when the process has ended
	state   string
}

// newCluster lays out directories and settings, and formats.
func newCluster(exe, dir string, n int) (*cluster, error) {
	c := &cluster{exe: exe}
	var voters []string
	for i := 1; i <= n; i++ {
		port, err := freePort(firstPort + i - 1)
		if err != nil {
			return nil, err
		}
		control, err := freePort(0)
		if err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, &node{id: i, port: port, control: control, dir: filepath.Join(dir, "node-"+strconv.Itoa(i)), state: "stopped"})
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", i, control))
	}
	for _, x := range c.nodes {
		if err := c.format(x, voters, min(n, 3)); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// freePort is wish, if nobody listens there, or another one.
func freePort(wish int) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(wish)))
	if err != nil && wish != 0 {
		return freePort(0)
	}
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

func (c *cluster) format(x *node, voters []string, factor int) error {
	if err := os.MkdirAll(x.dir, 0o755); err != nil {
		return err
	}
	properties := fmt.Sprintf(`process.roles=broker,controller
node.id=%d
listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d
controller.listener.names=CONTROLLER
controller.quorum.voters=%s
log.dirs=%s
default.replication.factor=%d
offsets.topic.replication.factor=%d
group.initial.rebalance.delay.ms=0
`, x.id, x.port, x.control, strings.Join(voters, ","), filepath.Join(x.dir, "data"), factor, factor)
	if err := os.WriteFile(x.settings(), []byte(properties), 0o644); err != nil {
		return err
	}
	out, err := exec.Command(c.exe, "storage", "format", "--ignore-formatted", "-t", clusterID, "-c", x.settings()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("formatting node %d: %w\n%s", x.id, err, out)
	}
	return nil
}

func (x *node) settings() string { return filepath.Join(x.dir, "server.properties") }

// bootstrap lists the addresses of all nodes.
func (c *cluster) bootstrap() []string {
	var out []string
	for _, x := range c.nodes {
		out = append(out, net.JoinHostPort("127.0.0.1", strconv.Itoa(x.port)))
	}
	return out
}

func (c *cluster) node(id int) (*node, error) {
	if id < 1 || id > len(c.nodes) {
		return nil, fmt.Errorf("there is no node %d, only 1 to %d", id, len(c.nodes))
	}
	return c.nodes[id-1], nil
}

// start starts a node that does not run.
func (c *cluster) start(id int) error {
	x, err := c.node(id)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.process != nil {
		return fmt.Errorf("node %d runs already", id)
	}
	log, err := os.OpenFile(filepath.Join(x.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	cmd := exec.Command(c.exe, "server", x.settings())
	cmd.Stdout, cmd.Stderr = log, log
	// Ctrl-C is for the demo, which stops the nodes; if the demo is killed they go with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := errors.Join(cmd.Start(), log.Close()); err != nil {
		return fmt.Errorf("starting node %d: %w", id, err)
	}
	x.process, x.gone, x.state = cmd.Process, make(chan struct{}), "running"
	gone := x.gone
	go func() {
		err := cmd.Wait()
		c.mu.Lock()
		x.process = nil
		switch {
		case err == nil:
			x.state = "stopped"
		case x.state == "running":
			x.state = "failed, see its log"
		}
		c.mu.Unlock()
		close(gone)
	}()
	return nil
}

// kill ends a node as a crash does.
func (c *cluster) kill(id int) error { return c.signal(id, syscall.SIGKILL, "killed") }

// stop lets a node leave in good order.
func (c *cluster) stop(id int) error { return c.signal(id, syscall.SIGTERM, "stopping") }

func (c *cluster) signal(id int, s syscall.Signal, state string) error {
	x, err := c.node(id)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.process == nil {
		return fmt.Errorf("node %d does not run", id)
	}
	x.state = state
	return x.process.Signal(s)
}

// close stops all nodes, those that do not go in time the hard way.
func (c *cluster) close() {
	var waits []chan struct{}
	for _, x := range c.nodes {
		if c.stop(x.id) == nil {
			waits = append(waits, x.gone)
		}
	}
	late := time.After(stopTimeout)
	for _, gone := range waits {
		select {
		case <-gone:
		case <-late:
			for _, x := range c.nodes {
				_ = c.kill(x.id) // it may have ended by now
			}
			<-gone
		}
	}
}

// nodeView is a node as the table shows it.
type nodeView struct {
	id, port, pid int
	state         string
	memory        int64 // resident bytes
}

func (c *cluster) look() []nodeView {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []nodeView
	for _, x := range c.nodes {
		v := nodeView{id: x.id, port: x.port, state: x.state}
		if x.process != nil {
			v.pid = x.process.Pid
			v.memory = resident(v.pid)
		}
		out = append(out, v)
	}
	return out
}

// resident is a process's resident memory in bytes, 0 when it has ended.
func resident(pid int) int64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(raw))
	if len(f) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
