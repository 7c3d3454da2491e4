package kraft

import (
	"cmp"
	"fmt"
	"slices"

	"weir/internal/uuid"
)

// None is the id of no node: no leader, no vote.
const None int32 = -1

// Position is a place in the log: Offset is the next offset to be written or
// read there, Epoch the leader epoch of the record before it. The id of a
// snapshot is the position it ends at. Kafka's OffsetAndEpoch.
type Position struct {
	Offset int64
	Epoch  int32
}

// Compare orders logs by how far they got: the epoch first, as Raft demands.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Epoch, q.Epoch), cmp.Compare(p.Offset, q.Offset))
}

func (p Position) String() string { return fmt.Sprintf("%d@%d", p.Offset, p.Epoch) }

// Replica names one copy of the log: a node and the directory on it. A zero
// Dir means that the directory is not known (kraft.version 0). Kafka's ReplicaKey.
type Replica struct {
	ID  int32
	Dir uuid.UUID
}

func (r Replica) String() string {
	if r.Dir == uuid.Zero {
		return fmt.Sprint(r.ID)
	}
	return fmt.Sprintf("%d-%s", r.ID, r.Dir)
}

// is reports whether both may be the same replica: ids are equal, and so are
// the directories where both are known.
func (r Replica) is(o Replica) bool {
	return r.ID == o.ID && (r.Dir == o.Dir || r.Dir == uuid.Zero || o.Dir == uuid.Zero)
}

// Endpoint is where a voter listens, by the name of its controller listener.
type Endpoint struct {
	Name string
	Host string
	Port uint16
}

// Voter is a member of the quorum. MinVersion and MaxVersion are the
// kraft.version levels it supports.
type Voter struct {
	Replica
	Endpoints              []Endpoint
	MinVersion, MaxVersion int16
}

// Endpoint finds where the voter listens by the name of a listener.
func (v *Voter) Endpoint(listener string) (Endpoint, bool) {
	for _, e := range v.Endpoints {
		if e.Name == listener {
			return e, true
		}
	}
	return Endpoint{}, false
}

// VoterSet is the members of the quorum in the order of their ids. It is not
// changed once made. The zero value is the empty set.
type VoterSet struct {
	voters []Voter
}

// NewVoterSet makes a set. It takes ownership of voters. Two voters with one id
// are an error.
func NewVoterSet(voters []Voter) (VoterSet, error) {
	slices.SortFunc(voters, func(a, b Voter) int { return cmp.Compare(a.ID, b.ID) })
	for i := 1; i < len(voters); i++ {
		if voters[i].ID == voters[i-1].ID {
			return VoterSet{}, fmt.Errorf("kraft: voter %d is named twice", voters[i].ID)
		}
	}
	return VoterSet{voters: voters}, nil
}

// Len is the number of voters.
func (s VoterSet) Len() int { return len(s.voters) }

// Voters lists the members by id. The slice is shared: read only.
func (s VoterSet) Voters() []Voter { return s.voters }

// Get finds a voter by node id.
func (s VoterSet) Get(id int32) (Voter, bool) {
	for _, v := range s.voters {
		if v.ID == id {
			return v, true
		}
	}
	return Voter{}, false
}

// Has reports whether r is a member. A directory id that either side does not
// know is not compared.
func (s VoterSet) Has(r Replica) bool {
	v, ok := s.Get(r.ID)
	return ok && v.is(r)
}

// IsOnly reports whether r is the only member.
func (s VoterSet) IsOnly(r Replica) bool { return len(s.voters) == 1 && s.Has(r) }

// majority is the number of voters that decides.
func (s VoterSet) majority() int { return len(s.voters)/2 + 1 }

// QuorumState is what a replica must not forget: the contents of the
// quorum-state file (records.QuorumStateData, v0 at kraft.version 0, else v1).
// invariant: Voted is None in an epoch whose leader is known and is not the
// voter itself only because Kafka drops the vote there; Epoch never goes back.
type QuorumState struct {
	Epoch  int32
	Leader int32   // None when unknown
	Voted  Replica // ID None when no vote was given in Epoch
}

// Role is what a replica is doing.
type Role uint8

// The roles; see the package comment.
const (
	Unattached Role = iota
	Follower
	Prospective
	Candidate
	Leader
	Resigned
)

func (r Role) String() string {
	return [...]string{"unattached", "follower", "prospective", "candidate", "leader", "resigned"}[r]
}

// LeaderAndEpoch says who leads; ID is None while an epoch has no known leader.
type LeaderAndEpoch struct {
	ID    int32
	Epoch int32
}

// Rand is the dice: n > 0; the answer is in [0, n). rng.Source offers it.
type Rand interface{ IntN(n int) int }
