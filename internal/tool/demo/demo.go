// Package demo is weir demo: a replicated cluster on this machine in one command,
// with a live table of who leads what and how fast records pass, so that a
// newcomer sees a failover in the first minute.
//
//	cluster.go  the nodes, each a process of its own: weir server FILE
//	load.go     a producer and a consumer group, and what they see
//	view.go     the table
//
// The nodes are real: what is typed kills, stops and starts processes.
package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Options is what a demo is made of.
type Options struct {
	Exe   string // the binary of the nodes
	Nodes int
	// Dir is where the data goes; empty: a temporary directory, removed at the end.
	Dir    string
	Rate   int // records per second
	In     io.Reader
	Out    io.Writer
	Screen bool // Out is a terminal: the table is redrawn in place
}

// maxNodes keeps a slip of the finger from starting a thousand processes.
const maxNodes = 9

// refresh is how often the table is shown: on a screen, and line by line elsewhere.
const (
	refresh     = 500 * time.Millisecond
	refreshText = 5 * time.Second
)

// Run runs the demo until ctx ends, the input says q, or the nodes cannot start.
func Run(ctx context.Context, o Options) (err error) {
	if o.Nodes < 1 || o.Nodes > maxNodes {
		return fmt.Errorf("--nodes %d: from 1 to %d nodes are possible", o.Nodes, maxNodes)
	}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "weir-demo-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	} else if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return err
	}
	c, err := newCluster(o.Exe, o.Dir, o.Nodes)
	if err != nil {
		return err
	}
	defer c.close()
	for _, n := range c.nodes {
		if err := c.start(n.id); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := newLoad(c.bootstrap(), o.Nodes, o.Rate)
	if err != nil {
		return err
	}
	defer l.close()
	fmt.Fprintf(o.Out, "Starting %d nodes in %s …\n", o.Nodes, o.Dir)
	if err := l.prepare(ctx); err != nil {
		return fmt.Errorf("%w; the nodes' logs are %s/node-*/log", err, o.Dir)
	}
	go l.produce(ctx)
	go l.consume(ctx)
	return loop(ctx, o, c, l)
}

// loop shows the table and does what is typed.
func loop(ctx context.Context, o Options, c *cluster, l *load) error {
	typed := make(chan string)
	go func() {
		defer close(typed)
		for s := bufio.NewScanner(o.In); s.Scan(); {
			select {
			case typed <- s.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	every := refreshText
	if o.Screen {
		every = refresh
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	said := ""
	for {
		show(o, view{bootstrap: c.bootstrap(), dir: o.Dir, nodes: c.look(), topic: l.look(ctx), said: said})
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case line, ok := <-typed:
			if !ok { // the input has ended: show on until ctx does
				typed = nil
				continue
			}
			var quit bool
			if said, quit = obey(c, l, line); quit {
				return nil
			}
		}
	}
}

// obey carries out one line of input and tells what came of it.
func obey(c *cluster, l *load, line string) (said string, quit bool) {
	cmd, id, err := parse(line)
	switch {
	case err != nil:
		return err.Error(), false
	case cmd == "q":
		return "", true
	case cmd == "":
		return "", false
	}
	did := map[string]string{"k": "killed", "t": "told to stop", "s": "started"}[cmd]
	do := map[string]func(int) error{"k": c.kill, "t": c.stop, "s": c.start}[cmd]
	l.resetGap()
	if err := do(id); err != nil {
		return err.Error(), false
	}
	return fmt.Sprintf("node %d was %s", id, did), false
}

// parse reads a command: a letter, and the number of a node for those that need one.
func parse(line string) (cmd string, id int, err error) {
	f := strings.Fields(line)
	if len(f) == 0 {
		return "", 0, nil
	}
	if len(f) == 1 && len(f[0]) > 1 && strings.Contains("kst", f[0][:1]) { // "k2"
		f = []string{f[0][:1], f[0][1:]}
	}
	switch f[0] {
	case "q":
		return "q", 0, nil
	case "k", "s", "t":
		if len(f) == 2 {
			if id, err = strconv.Atoi(f[1]); err == nil {
				return f[0], id, nil
			}
		}
		return "", 0, fmt.Errorf("%s needs the number of a node, as in: %s 2", f[0], f[0])
	}
	return "", 0, fmt.Errorf("%q is no command: k N kills node N, t N lets it stop in good order, s N starts it, q ends", line)
}
