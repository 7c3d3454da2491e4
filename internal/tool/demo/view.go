package demo

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// view is everything that is shown.
type view struct {
	bootstrap []string
	dir       string
	nodes     []nodeView
	topic     topicView
	said      string // what came of the last command
}

const home = "\x1b[H\x1b[2J" // top left, and clear the screen

func show(o Options, v view) {
	if o.Screen {
		fmt.Fprint(o.Out, home)
	}
	v.write(o.Out)
}

// write shows the nodes, the partitions and the load.
func (v view) write(out io.Writer) {
	fmt.Fprintf(out, "bootstrap.servers=%s   data: %s\n\n", strings.Join(v.bootstrap, ","), v.dir)
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "NODE\tADDRESS\tPID\tSTATE\tMEMORY\tLEADS\t")
	for _, n := range v.nodes {
		pid, memory, role := "-", "-", ""
		if n.pid != 0 {
			pid, memory = fmt.Sprint(n.pid), fmt.Sprintf("%d MB", n.memory>>20)
		}
		if int32(n.id) == v.topic.controller {
			role = "active controller"
		}
		fmt.Fprintf(t, "%d\t127.0.0.1:%d\t%s\t%s\t%s\t%d\t%s\n", n.id, n.port, pid, n.state, memory, v.leads(n.id), role)
	}
	fmt.Fprintln(t, "\nPARTITION\tLEADER\tREPLICAS\tIN SYNC\t")
	for _, p := range v.topic.partitions {
		leader := fmt.Sprint(p.Leader)
		if p.Leader < 0 {
			leader = "none"
		}
		fmt.Fprintf(t, "%s-%d\t%s\t%s\t%s\t\n", topic, p.Partition, leader, list(p.Replicas), list(p.ISR))
	}
	_ = t.Flush() // the table goes where the rest goes
	w := v.topic
	fmt.Fprintf(out, "\n%.0f records/s written (acks=all), %.0f/s read by group %s; %d acknowledged, %d failed; longest write gap of a partition: %s\n",
		w.writes, w.reads, group, w.acked, w.failed, w.gap.Round(time.Millisecond))
	if w.err != "" {
		fmt.Fprintln(out, "last error:", w.err)
	}
	fmt.Fprintf(out, "\nk N kills node N, t N lets it stop in good order, s N starts it, q ends.   %s\n", v.said)
}

func (v view) leads(id int) int {
	n := 0
	for _, p := range v.topic.partitions {
		if p.Leader == int32(id) {
			n++
		}
	}
	return n
}

func list(ids []int32) string {
	var out []string
	for _, id := range ids {
		out = append(out, fmt.Sprint(id))
	}
	return strings.Join(out, " ")
}
