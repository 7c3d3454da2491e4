package sim

import (
	"fmt"
	"strings"
	"time"

	"weir/internal/rng"
)

// Settings is what a seed decides before anything happens.
type Settings struct {
	Nodes        int           // the first three are voters and brokers, a fourth is a broker alone
	Length       time.Duration // of the time of faults
	DelayMs      int           // a message takes up to this long
	LossPercent  int           // how many messages in a hundred cut their connection
	FaultEvery   time.Duration // on average
	Quick        bool          // restarts within milliseconds
	SegmentBytes int
	BatchBytes   int32 // limit of a metadata batch
	FetchBytes   int32 // a follower of the metadata log gets so much at a time
	AtomicBytes  int   // more becomes a metadata transaction
	Snapshot     int64 // bytes of metadata between snapshots
	Producers    int   // for each partition
	Pace         time.Duration
	Window       int  // batches of a producer on their way at once
	StallPercent int  // how many messages in a hundred, and what is sent after them on their connection, take much longer
	Hasty        bool // leaders of the quorum die when they are about to tell, or have just told, others of their epoch
	Late         bool // answers to followers often arrive when there is another leader already
}

func draw(d *rng.Source) Settings {
	pick := func(of ...int) int { return of[d.IntN(len(of))] }
	s := Settings{
		Nodes: pick(3, 3, 4), Length: time.Duration(pick(1500, 2500)) * time.Millisecond,
		DelayMs: pick(2, 5, 12), LossPercent: pick(0, 1, 2), FaultEvery: time.Duration(pick(60, 120, 250)) * time.Millisecond,
		Quick: d.IntN(3) == 0, SegmentBytes: pick(2000, 1<<20), BatchBytes: int32(pick(400, 600, 1<<20)), FetchBytes: int32(pick(100, 300, 700, 1<<20)),
		AtomicBytes: pick(50, 200, 1<<20), Snapshot: int64(pick(1500, 4000, 1<<20)), Producers: pick(1, 2), Pace: time.Duration(pick(15, 30, 60)) * time.Millisecond, Window: pick(1, 1, 3),
	}
	s.StallPercent, s.Hasty, s.Late = pick(0, 0, 3, 10), d.IntN(4) == 0, d.IntN(4) == 0
	if s.Hasty {
		s.FetchBytes = 100 // one batch at a time
	}
	s.AtomicBytes = min(s.AtomicBytes, int(s.BatchBytes)-250) // what is atomic must fit into a batch
	return s
}

func (s Settings) String() string {
	return fmt.Sprintf("nodes %d, %v of faults every %v, delay %d ms, loss %d %%, stalls %d %%, hasty %t, late %t, quick %t, segments %d, metadata batch %d fetch %d atomic %d snapshot %d, %d producers a partition every %v, window %d",
		s.Nodes, s.Length, s.FaultEvery, s.DelayMs, s.LossPercent, s.StallPercent, s.Hasty, s.Late, s.Quick, s.SegmentBytes, s.BatchBytes, s.FetchBytes, s.AtomicBytes, s.Snapshot, s.Producers, s.Pace, s.Window)
}

// The settings of the product that matter, in milliseconds: an hour of a cluster is to
// pass within seconds.
const (
	electionMs   = 100
	fetchMs      = 200
	sessionMs    = 300
	heartbeatMs  = 60
	lagMs        = 250
	uncleanMs    = 100
	noOpMs       = 100
	fetchWaitMs  = 60
	requestMs    = 150 // patience of who asks
	patientMs    = 450 // that of a follower in Settings.Late: longer than a session, as in the product
	overtakenMs  = 300 // how long an answer may be kept back
	upkeepMs     = 90
	minISR       = 2
	retryAlterMs = 50
)

// Counters is how often what happened in a run, or in many.
type Counters struct {
	Truncations    int // of a partition to where its leader's epoch ended
	Shrinks        int // the ISR shrank while an AlterPartition was in flight
	Expands        int // it grew meanwhile
	Unclean        int // elections
	Lost           int // restarts after which a log lacked what was not synced
	Snapshots      int // fetched from another node
	Transactions   int // of metadata, left open by a controller and aborted by the next
	Crashes, Cuts  int // processes, power
	Elections      int // of the quorum
	Acked, Read    int // batches
	Steps, Parted  int
	Stopped, Disks int // clean stops, failed disks
	Full           int // disks for a while
}

// counts are the counters with their names, in the order in which they are told.
func (c *Counters) counts() []named {
	return []named{
		{"truncations by epoch", &c.Truncations}, {"ISR shrinks while AlterPartition in flight", &c.Shrinks}, {"ISR expands while AlterPartition in flight", &c.Expands},
		{"unclean elections", &c.Unclean}, {"restarts that lost unsynced data", &c.Lost}, {"snapshot transfers", &c.Snapshots},
		{"failovers inside a metadata transaction", &c.Transactions}, {"processes killed", &c.Crashes}, {"power cuts", &c.Cuts}, {"clean stops", &c.Stopped},
		{"failed disks", &c.Disks}, {"full disks", &c.Full}, {"nodes parted", &c.Parted}, {"elections of the quorum", &c.Elections},
		{"batches acked with acks=all", &c.Acked}, {"batches read", &c.Read}, {"steps", &c.Steps},
	}
}

type named struct {
	name string
	n    *int
}

// Add sums up.
func (c *Counters) Add(o Counters) {
	theirs := o.counts()
	for i, x := range c.counts() {
		*x.n += *theirs[i].n
	}
}

func (c Counters) String() string {
	var b strings.Builder
	for _, x := range c.counts() {
		fmt.Fprintf(&b, "%-42s %d\n", x.name, *x.n)
	}
	return b.String()
}
