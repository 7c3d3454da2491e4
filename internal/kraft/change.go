package kraft

import (
	"fmt"
	"slices"
	"strings"

	"weir/internal/uuid"
)

// A leader changes the voters one at a time (KIP-853): a change is a record in
// the log, in force from its append on, and the next one waits until it is
// committed and the leader has committed something in its own epoch. Two sets in
// a row then share a majority.

// AddVoterRequest asks the leader to make an observer a voter.
type AddVoterRequest struct {
	Voter Voter
	// AckEarly: the answer need not wait for the commit.
	AckEarly bool
}

// RemoveVoterRequest asks the leader to make a voter an observer. It may be the
// leader itself, which then resigns once the change is committed.
type RemoveVoterRequest struct{ Voter Replica }

// UpdateVoterRequest tells the leader where a voter listens and which levels of
// kraft.version it supports now; the voter sends it itself.
type UpdateVoterRequest struct {
	Epoch int32 // the sender's
	Voter Voter
}

// UpgradeRequest asks the leader to raise kraft.version, from the voters that are
// fixed in the files to voters that the log names and that can change. ValidateOnly:
// only tell whether it could.
type UpgradeRequest struct {
	Version      int16
	ValidateOnly bool
}

// MaxVersion is the newest kraft.version.
const MaxVersion = 1

// ChangeResponse answers these requests. Text says more than the code does.
type ChangeResponse struct {
	Head
	Text string
}

func (AddVoterRequest) request()    {}
func (RemoveVoterRequest) request() {}
func (UpdateVoterRequest) request() {}
func (UpgradeRequest) request()     {}
func (ChangeResponse) response()    {}

// change is one that is not committed yet.
type change struct {
	ref    uint64
	base   int64 // of its records
	offset int64 // of the last of them
	early  bool  // to be answered when it is durable here
	told   bool  // answered already
}

// caughtUpMs is how lately an observer must have had all of the leader's log to
// become a voter (Kafka's, too).
const caughtUpMs = 3_600_000

func (c *Core) refuseChange(ref uint64, code Code, format string, args ...any) {
	c.reply(ref, ChangeResponse{Head: c.head(code), Text: fmt.Sprintf(format, args...)})
}

// mayChange answers a request that cannot be taken up now.
func (c *Core) mayChange(ref uint64) bool {
	switch _, _, at := c.members.current(); {
	case c.role != Leader:
		c.refuseChange(ref, NotLeader, "This server is not the leader of the metadata quorum.")
	case c.hw <= c.lead.start:
		c.refuseChange(ref, RequestTimedOut, "The leader has not yet committed a record in its epoch.")
	case c.lead.change != nil || at >= c.hw:
		c.refuseChange(ref, RequestTimedOut, "Another change of the voters is not committed yet.")
	default:
		return true
	}
	return false
}

// reconfigurable refuses changes below kraft.version 1.
func (c *Core) reconfigurable(ref uint64, verb string) bool {
	if c.version >= 1 {
		return true
	}
	c.refuseChange(ref, UnsupportedVersion, "Cluster doesn't support %s voter because the kraft.version feature is %d", verb, c.version)
	return false
}

func (c *Core) addVoter(ref uint64, q AddVoterRequest) {
	if !c.mayChange(ref) || !c.reconfigurable(ref, "adding") {
		return
	}
	if _, ok := c.set.Get(q.Voter.ID); ok {
		c.refuseChange(ref, DuplicateVoter, "The voter id for %s is already part of the set of voters %s.", key(q.Voter.Replica), keys(c.set))
		return
	}
	if q.Voter.MinVersion > c.version || q.Voter.MaxVersion < c.version {
		c.refuseChange(ref, InvalidRequest, "Aborted add voter operation for %s since the kraft.version range %d to %d it supports is not compatible with the finalized level %d.",
			key(q.Voter.Replica), q.Voter.MinVersion, q.Voter.MaxVersion, c.version)
		return
	}
	i := slices.IndexFunc(c.lead.peers, func(p peer) bool { return p.replica == q.Voter.Replica })
	if i < 0 || c.lead.peers[i].caughtUpAt < 0 || c.now-c.lead.peers[i].fetchedAt >= caughtUpMs {
		c.refuseChange(ref, RequestTimedOut, "Aborted add voter operation for %s since it is lagging behind", key(q.Voter.Replica))
		return
	}
	c.changeTo(ref, append(slices.Clone(c.set.voters), q.Voter), q.AckEarly)
}

func (c *Core) removeVoter(ref uint64, q RemoveVoterRequest) {
	if !c.mayChange(ref) || !c.reconfigurable(ref, "removing") {
		return
	}
	v, ok := c.set.Get(q.Voter.ID)
	if !ok || v.Replica != q.Voter || c.set.Len() == 1 {
		c.refuseChange(ref, VoterNotFound, "Cannot remove voter %s from the set of voters %s", key(q.Voter), keys(c.set))
		return
	}
	c.changeTo(ref, slices.DeleteFunc(slices.Clone(c.set.voters), func(o Voter) bool { return o.ID == v.ID }), false)
}

func (c *Core) updateVoter(ref uint64, q UpdateVoterRequest) {
	if code := c.leaderOnly(q.Epoch); code != OK {
		c.refuseChange(ref, code, "")
		return
	}
	if c.version < 1 { // the fixed set of server.properties: it is remembered for an upgrade
		if _, ok := c.set.Get(q.Voter.ID); !ok {
			c.refuseChange(ref, VoterNotFound, "Voter %s is not in the set of voters %s", key(q.Voter.Replica), keys(c.set))
			return
		}
		c.lead.told[q.Voter.ID] = q.Voter
		c.reply(ref, ChangeResponse{Head: c.head(OK)})
		return
	}
	if !c.mayChange(ref) {
		return
	}
	v, ok := c.set.Get(q.Voter.ID)
	switch {
	case !ok || v.Replica != q.Voter.Replica:
		c.refuseChange(ref, VoterNotFound, "Voter %s is not in the set of voters %s", key(q.Voter.Replica), keys(c.set))
		return
	case q.Voter.MinVersion > c.version || q.Voter.MaxVersion < c.version || len(q.Voter.Endpoints) == 0:
		c.refuseChange(ref, InvalidRequest, "")
		return
	case v.MinVersion == q.Voter.MinVersion && v.MaxVersion == q.Voter.MaxVersion && slices.Equal(v.Endpoints, q.Voter.Endpoints):
		c.reply(ref, ChangeResponse{Head: c.head(OK)})
		return
	}
	voters := slices.Clone(c.set.voters)
	for i := range voters {
		if voters[i].ID == q.Voter.ID {
			voters[i] = q.Voter
		}
	}
	c.changeTo(ref, voters, false)
}

// upgrade raises kraft.version to 1: the voters stay the same, and the log names
// them with their directories and addresses, which they have told this leader
// (UpdateVoterRequest).
func (c *Core) upgrade(ref uint64, q UpgradeRequest) {
	if c.role == Leader && q.Version == c.version {
		c.reply(ref, ChangeResponse{Head: c.head(OK)})
		return
	}
	if !c.mayChange(ref) {
		return
	}
	if q.Version < c.version || q.Version > MaxVersion {
		c.refuseChange(ref, InvalidUpdateVersion, "Invalid upgrade of kraft.version from version %d to %d", c.version, q.Version)
		return
	}
	var voters []Voter
	for _, v := range c.set.voters {
		if v.ID == c.self.ID {
			voters = append(voters, Voter{Replica: c.self, Endpoints: c.endpoints, MaxVersion: MaxVersion})
			continue
		}
		now, told := c.lead.told[v.ID]
		if !told || now.MaxVersion < q.Version || now.MinVersion > q.Version || now.Dir == uuid.Zero || len(now.Endpoints) == 0 {
			c.refuseChange(ref, InvalidUpdateVersion, "Invalid upgrade of kraft.version to KRAFT_VERSION_%d because not all of the voters support it", q.Version)
			return
		}
		voters = append(voters, now)
	}
	if q.ValidateOnly {
		c.reply(ref, ChangeResponse{Head: c.head(OK)})
		return
	}
	c.changeWith(ref, voters, &q.Version, false)
}

// changeTo appends the record of a new set, which is in force at once.
func (c *Core) changeTo(ref uint64, voters []Voter, early bool) {
	c.changeWith(ref, voters, nil, early)
}

// changeWith is changeTo, with a new kraft.version before the set.
func (c *Core) changeWith(ref uint64, voters []Voter, version *int16, early bool) {
	set, err := NewVoterSet(voters)
	if err != nil { // an id twice: refused before
		c.refuseChange(ref, InvalidRequest, "%v", err)
		return
	}
	b := &ControlBatch{Base: c.log.End, Epoch: c.state.Epoch, Leader: c.self.ID, Within: true, Version: version, Voters: &set}
	c.log.append([]Entry{{Next: b.Base + b.Count(), Epoch: c.state.Epoch}})
	if version != nil {
		c.members.append([]Control{{Offset: b.Base, Version: version}})
	}
	c.members.append([]Control{{Offset: b.Base + b.Count() - 1, Voters: &set}})
	c.refreshMembers()
	c.ready.Control = b
	c.lead.change = &change{ref: ref, base: b.Base, offset: b.Base + b.Count() - 1, early: early}
	c.wake()
	c.checkQuorum()
}

// ackEarly answers a change whose asker does not wait for the commit.
func (c *Core) ackEarly() {
	if ch := c.lead.change; ch != nil && ch.early && !ch.told && c.log.Flushed > ch.offset {
		ch.told = true
		c.reply(ch.ref, ChangeResponse{Head: c.head(OK)})
	}
}

// unwritten takes a change back for which the disk has no room.
func (c *Core) unwritten() {
	if c.role != Leader || c.lead.change == nil {
		return
	}
	ch := c.lead.change
	c.lead.change = nil
	c.log.truncate(ch.base)
	c.members.truncate(ch.base)
	c.refreshMembers()
	c.refuseChange(ch.ref, RequestTimedOut, "There is no room on the disk of the leader's metadata log.")
}

// settleChange answers a change that is committed; a leader that it has removed
// resigns.
func (c *Core) settleChange() {
	ch := c.lead.change
	if ch == nil || c.hw <= ch.offset {
		return
	}
	c.lead.change = nil
	if !ch.told {
		c.reply(ch.ref, ChangeResponse{Head: c.head(OK)})
	}
	if !c.isVoter() {
		c.enterResigned()
	}
}

// key writes a replica as the answers to those who change voters do (ReplicaKey.toString).
func key(r Replica) string {
	dir := "<undefined>"
	if r.Dir != uuid.Zero {
		dir = r.Dir.String()
	}
	return fmt.Sprintf("ReplicaKey(id=%d, directoryId=%s)", r.ID, dir)
}

// keys lists voters as such an answer does.
func keys(s VoterSet) string {
	out := make([]string, 0, len(s.voters))
	for _, v := range s.voters {
		out = append(out, key(v.Replica))
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// String lists the voters.
func (s VoterSet) String() string {
	out := "{"
	for i, v := range s.voters {
		if i > 0 {
			out += ", "
		}
		out += v.Replica.String()
	}
	return out + "}"
}
