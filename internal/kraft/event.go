package kraft

// Event is what a Core can be stepped with: [Tick], [Appended], [Flushed], [Unwritten],
// [Snapshotted], [Installing], [Refused], [Resign], [Request] and [Response].
type Event interface{ event() }

// Tick lets time pass. The driver sends one when [Core.Deadline] has come;
// more do no harm.
type Tick struct{}

// Appended reports batches that the driver wrote at the log's end: as leader,
// records of its own; as follower, the records of a FetchResponse that Ready
// told it to append. Base must be the log's end.
type Appended struct {
	Base    int64
	Entries []Entry
	Control []Control // what control batches among them said, in offset order
}

// Entry is one appended batch: Next is the offset after its last record.
type Entry struct {
	Next  int64
	Epoch int32
}

// Control is a membership record found in the log. Exactly one of Voters and
// Version is set.
type Control struct {
	Offset  int64
	Voters  *VoterSet
	Version *int16 // kraft.version
}

// Flushed reports that the log is durable below Offset.
type Flushed struct{ Offset int64 }

// Unwritten reports that there was no room on the disk for a Control batch Within
// the epoch: it is taken back. The batch that opens an epoch has no such way out;
// the driver takes no step until it is written.
type Unwritten struct{}

// Snapshotted reports that a snapshot ending at ID is durable here. Start, when
// set, is the snapshot that the log now begins at: one that Ready.Install asked
// for, or the oldest that is kept. Control is what an installed snapshot says
// about membership, with offsets below ID's.
type Snapshotted struct {
	ID      Position
	Start   *Position
	Control []Control
}

// Installing reports how the download that Ready.Install asked for goes: each
// piece that arrives, or, with Failed, that it was given up and the leader is to
// be asked again. Success is reported with Snapshotted.
type Installing struct{ Failed bool }

// Refused reports that a node actively refused a connection (ECONNREFUSED) at
// an address where it listens: its process is gone. A time-out is no proof and
// is not reported. See availability C3(d).
type Refused struct{ ID int32 }

// Resign gives up leadership, for a shutdown or after a failed append. A
// replica that does not lead ignores it.
type Resign struct{}

// Request is a message from another replica or a tool. Ref comes back in the
// Reply; the core gives it no meaning.
type Request struct {
	From int32 // node id, None when unknown
	Ref  uint64
	Body RequestBody
}

// Response answers a Send: ID is that of the Send. Body is nil when no answer
// came (connection closed, time-out).
type Response struct {
	From int32
	ID   uint64
	Body ResponseBody
}

func (Tick) event()        {}
func (Appended) event()    {}
func (Flushed) event()     {}
func (Unwritten) event()   {}
func (Snapshotted) event() {}
func (Installing) event()  {}
func (Refused) event()     {}
func (Resign) event()      {}
func (Request) event()     {}
func (Response) event()    {}

// Code is the outcome of a request, numbered as Kafka's error codes.
type Code int16

// The codes that the quorum's requests are answered with.
const (
	OK                   Code = 0
	OffsetOutOfRange     Code = 1
	NotLeader            Code = 6 // NOT_LEADER_OR_FOLLOWER
	RequestTimedOut      Code = 7
	BrokerNotAvailable   Code = 8
	UnsupportedVersion   Code = 35
	InvalidRequest       Code = 42
	FencedLeaderEpoch    Code = 74
	UnknownLeaderEpoch   Code = 75
	InconsistentVoters   Code = 94
	InvalidVoterKey      Code = 125
	PositionOutOfRange   Code = 99
	SnapshotNotFound     Code = 98
	InconsistentCluster  Code = 104
	InvalidUpdateVersion Code = 95
	DuplicateVoter       Code = 126
	VoterNotFound        Code = 127
)

// RequestBody is one of VoteRequest, BeginRequest, EndRequest, FetchRequest,
// SnapshotRequest, AddVoterRequest, RemoveVoterRequest, UpdateVoterRequest and
// UpgradeRequest.
type RequestBody interface{ request() }

// ResponseBody is one of VoteResponse, BeginResponse, EndResponse, FetchResponse,
// SnapshotResponse and ChangeResponse.
type ResponseBody interface{ response() }

// Head is what every answer carries: an outcome and who leads which epoch, as
// far as the answering replica knows.
type Head struct {
	Code   Code
	Leader LeaderAndEpoch
}

// VoteRequest asks for a vote in Epoch, or, with PreVote, whether one would be
// given. Voter is whom the sender believes to be asking.
type VoteRequest struct {
	Epoch     int32
	Candidate Replica
	Voter     Replica
	Last      Position // end of the candidate's log
	PreVote   bool
}

// VoteResponse answers a VoteRequest.
type VoteResponse struct {
	Head
	Granted bool
}

// BeginRequest (BeginQuorumEpoch) is the leader's announcement to a voter.
type BeginRequest struct {
	Leader          LeaderAndEpoch
	Voter           Replica
	LeaderEndpoints []Endpoint
}

// BeginResponse answers a BeginRequest.
type BeginResponse struct{ Head }

// EndRequest (EndQuorumEpoch) is the leader's farewell; Successors are the other
// voters, the one with the longest log first.
type EndRequest struct {
	Leader          LeaderAndEpoch
	Successors      []Replica
	LeaderEndpoints []Endpoint
}

// EndResponse answers an EndRequest.
type EndResponse struct{ Head }

// FetchRequest asks the leader for records from Offset on. LastEpoch is the
// leader epoch of the record before Offset in the asker's log.
type FetchRequest struct {
	Replica       Replica // ID None for a tool or consumer
	Epoch         int32   // the epoch the asker is in; -1 when unknown (not checked)
	Offset        int64
	LastEpoch     int32
	HighWatermark int64 // the asker's; -1 when it sends none (before KIP-1166)
	MaxWaitMs     int64
	MaxBytes      int32
}

// FetchResponse answers a FetchRequest. At most one of Diverging and Snapshot is
// set. In a Reply of the core, Read says that the driver adds the records from
// Offset to the log's end as Records; in a received answer Records holds the
// batches, owned by the driver.
type FetchResponse struct {
	Head
	HighWatermark int64
	LogStart      int64
	Diverging     *Position // truncate to where both logs agree, at most here
	Snapshot      *Position // fetch this snapshot first
	Read          bool
	Offset        int64
	MaxBytes      int32
	Records       []byte
}

// SnapshotRequest (FetchSnapshot) asks the leader for a piece of a snapshot. The
// core only checks epoch and leadership, and notes that the asker is alive.
type SnapshotRequest struct {
	Replica  Replica
	Epoch    int32
	ID       Position
	Offset   int64 // in bytes
	MaxBytes int32
}

// SnapshotResponse answers a SnapshotRequest: with code OK the driver adds the
// bytes, or answers SnapshotNotFound or PositionOutOfRange.
type SnapshotResponse struct {
	Head
	ID     Position
	Size   int64
	Offset int64
	Bytes  []byte
}

func (SnapshotRequest) request()   {}
func (SnapshotResponse) response() {}
func (VoteRequest) request()       {}
func (BeginRequest) request()      {}
func (EndRequest) request()        {}
func (FetchRequest) request()      {}
func (VoteResponse) response()     {}
func (BeginResponse) response()    {}
func (EndResponse) response()      {}
func (FetchResponse) response()    {}

// Ready is what one step asks the driver to do, in this order.
type Ready struct {
	// QuorumState, when set, is written and fsynced before anything below.
	QuorumState *QuorumState

	// Truncate, unless negative, cuts the log so that it ends at this offset.
	Truncate int64

	// Install, when set, says that the leader no longer has the records we need:
	// the snapshot must be fetched from it and the log restarted at its end. The
	// driver reports Snapshotted when it has done so.
	Install *Position

	// Control, when set, is one batch of control records that the leader writes at
	// Control.Base, a new one first of all. The core counts it as appended already; the driver
	// flushes and reports Flushed.
	Control *ControlBatch

	// Append holds batches of a fetch answer to be appended as they are. The
	// driver checks them, appends what is whole and in order, flushes when this
	// replica is a voter, and reports Appended and Flushed.
	Append []byte

	// Send and Reply leave the process now.
	Send  []Send
	Reply []Reply

	// HighWatermark is the present one (-1 while unknown); records below it are
	// committed.
	HighWatermark int64

	// Leader, when set, tells that the known leader or epoch changed.
	Leader *LeaderAndEpoch
}

// Send is a request to another replica. To is None for "any bootstrap server".
// The driver answers each with one Response that carries ID.
type Send struct {
	To   int32
	ID   uint64
	Body RequestBody
}

// Reply answers the Request with that Ref.
type Reply struct {
	Ref  uint64
	Body ResponseBody
}

// ControlBatch is what a leader writes first in its epoch. Granting lists who
// voted for it. Voters and Version are set when the voter set came from
// 0-0.checkpoint and is put into the log for the first time; then the batch
// holds, in this order, LeaderChange, KRaftVersion and KRaftVoters. LeaderChange
// is v0, as Kafka 4.3.1 writes it under either kraft.version. Within is set for a
// batch in the middle of the epoch, which changes the voters: it has no LeaderChange.
type ControlBatch struct {
	Within            bool
	Base              int64
	Epoch             int32
	Leader            int32
	Members, Granting []Replica
	Version           *int16
	Voters            *VoterSet
}

// Count is the number of records in the batch.
func (b *ControlBatch) Count() int64 {
	n := int64(1)
	if b.Within {
		n = 0
	}
	if b.Version != nil {
		n++
	}
	if b.Voters != nil {
		n++
	}
	return n
}
