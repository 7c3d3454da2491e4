package wire

import (
	"bytes"
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

	"github.com/twmb/franz-go/pkg/kmsg"
)

// node is a running server: one process, broker and controller, with two log
// directories and two listeners for clients.
type node struct {
	kafka  bool
	dir    string
	main   string // host:port of the first listener
	second string // of the second, on the IPv6 loopback when there is one
	ctl    string // of the controllers' listener
	http   string // of Weir's metrics
	cmd    *exec.Cmd
	log    *os.File
}

// clusterID is a fixed one, so that transcripts need no name for it.
const clusterID = "4L6g3nShT-eMCtK--X86sw"

// freePorts asks the system for ports that nothing listens on.
func freePorts(n int) ([]int, error) {
	var out []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		out = append(out, l.Addr().(*net.TCPAddr).Port)
	}
	return out, nil
}

// secondHost is the IPv6 loopback where the machine has it.
func secondHost() string {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		return "127.0.0.1"
	}
	l.Close()
	return "[::1]"
}

// newNode writes a configuration that both servers take.
func newNode(dir string, kafka bool) (*node, error) {
	ports, err := freePorts(4)
	if err != nil {
		return nil, err
	}
	n := &node{
		kafka: kafka, dir: dir,
		main: fmt.Sprintf("127.0.0.1:%d", ports[0]), second: fmt.Sprintf("%s:%d", secondHost(), ports[1]),
		ctl: fmt.Sprintf("127.0.0.1:%d", ports[2]), http: fmt.Sprintf("127.0.0.1:%d", ports[3]),
	}
	text := fmt.Sprintf(`process.roles=broker,controller
node.id=1
controller.quorum.voters=1@%[3]s
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listeners=PLAINTEXT://%[1]s,SECOND://%[2]s,CONTROLLER://%[3]s
advertised.listeners=PLAINTEXT://%[1]s,SECOND://%[2]s
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT
log.dirs=%[4]s/data-a,%[4]s/data-b
num.partitions=2
broker.rack=rack-1
socket.request.max.bytes=20000000
message.max.bytes=1048588
log.cleaner.backoff.ms=200
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=200
group.min.session.timeout.ms=1000
group.max.size=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
`, n.main, n.second, n.ctl, dir)
	if !kafka {
		text += "weir.metrics.listener=" + n.http + "\n"
	}
	return n, os.WriteFile(n.properties(), []byte(text), 0o644)
}

func (n *node) properties() string { return filepath.Join(n.dir, "server.properties") }

// run starts the process and waits until it answers.
func (n *node) run(name string, args ...string) error {
	var err error
	if n.log, err = os.Create(filepath.Join(n.dir, "server.log")); err != nil {
		return err
	}
	n.cmd = exec.Command(name, args...)
	n.cmd.Env = oracleEnv()
	n.cmd.Stdout, n.cmd.Stderr = n.log, n.log
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.cmd.Start(); err != nil {
		return err
	}
	deadline := time.Now().Add(40 * time.Second)
	for {
		err := n.answers()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(n.log.Name())
			return fmt.Errorf("the node does not answer: %w\n%s", err, log)
		}
		time.Sleep(50 * time.Millisecond) // a real process starts: there is no event to wait for
	}
}

// answers tells whether the node serves topics.
func (n *node) answers() error {
	c, err := dial(n.main)
	if err != nil {
		return err
	}
	defer c.Close()
	req := kmsg.NewPtrMetadataRequest()
	res, err := c.do(req, 9)
	if err != nil {
		return err
	}
	if len(res.(*kmsg.MetadataResponse).Brokers) == 0 {
		return errors.New("no broker is registered")
	}
	return nil
}

// stop ends the process that run started.
func (n *node) stop() {
	if n == nil || n.cmd == nil || n.cmd.Process == nil {
		return
	}
	_ = n.cmd.Process.Kill() // it may have ended by itself
	_ = n.cmd.Wait()
	n.log.Close()
}

func oracleEnv() []string {
	return append(os.Environ(), "KAFKA_FAST=1", "KAFKA_HEAP=-Xmx384m -Xms128m")
}

// oracle is the script that runs Apache Kafka, "" when there is none.
func oracle() string {
	name := os.Getenv("WEIR_ORACLE")
	if name == "" {
		name = "../../../shared/oracle/kafka"
	}
	if _, err := os.Stat(name); err != nil {
		return ""
	}
	if abs, err := filepath.Abs(name); err == nil {
		return abs
	}
	return name
}

func startKafka(dir string) (*node, error) {
	n, err := newNode(dir, true)
	if err != nil {
		return nil, err
	}
	if err := command(oracle(), "kafka-storage", "format", "-t", clusterID, "-c", n.properties()); err != nil {
		return nil, err
	}
	return n, n.run(oracle(), "kafka-server-start", n.properties())
}

func startWeir(dir string) (*node, error) {
	n, err := newNode(dir, false)
	if err != nil {
		return nil, err
	}
	bin := os.Getenv("WEIR_BIN")
	if bin == "" {
		bin = filepath.Join(dir, "weir")
		if err := command("go", "build", "-o", bin, "../../cmd/weir"); err != nil {
			return nil, err
		}
	}
	if err := command(bin, "storage", "format", "-t", clusterID, "-c", n.properties()); err != nil {
		return nil, err
	}
	return n, n.run(bin, "server", n.properties())
}

func command(name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.Env = oracleEnv()
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, &out)
	}
	return nil
}

// started is one node of a package run, started when first asked for.
type started struct {
	start func(dir string) (*node, error)
	done  chan struct{}
	node  *node
	err   error
}

func (s *started) begin(dir string) {
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		if s.err = os.Mkdir(dir, 0o755); s.err == nil {
			s.node, s.err = s.start(dir)
		}
	}()
}

func (s *started) get(t *testing.T) *node {
	t.Helper()
	<-s.done
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.node
}

// The nodes that all cases of a run share.
var (
	weirNode  = &started{start: startWeir}
	kafkaNode = &started{start: startKafka}
)

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	dir, err := os.MkdirTemp("", "weir-wire-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	weirNode.begin(filepath.Join(dir, "weir-node"))
	defer func() { <-weirNode.done; weirNode.node.stop() }()
	if oracle() != "" {
		kafkaNode.begin(filepath.Join(dir, "kafka-node"))
		defer func() { <-kafkaNode.done; kafkaNode.node.stop() }()
	}
	return m.Run()
}
