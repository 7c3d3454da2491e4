package metalog

import (
	"fmt"

	"weir/internal/batch"
	"weir/internal/kraft"
	"weir/internal/records"
)

// controlBatch builds the batch that a new leader writes first, or one that
// changes the voters later.
func controlBatch(c *kraft.ControlBatch, nowMs int64) batch.Batch {
	b := newBuilder(c.Base, c.Epoch, true)
	if !c.Within {
		m := records.NewLeaderChangeMessage()
		m.LeaderID = c.Leader
		m.Voters, m.GrantingVoters = leaderChangeVoters(c.Members), leaderChangeVoters(c.Granting)
		b.Append(nowMs, records.ControlKey(records.ControlLeaderChange), m.AppendTo(nil, 0), nil)
	}
	if c.Version != nil {
		appendVersion(b, nowMs, *c.Version)
	}
	if c.Voters != nil {
		appendVoters(b, nowMs, *c.Voters)
	}
	return b.Build()
}

// leaderChangeVoters names the voters as LeaderChange v0 does: without directories.
func leaderChangeVoters(rs []kraft.Replica) []records.LeaderChangeMessageVoter {
	out := make([]records.LeaderChangeMessageVoter, len(rs))
	for i, r := range rs {
		out[i].VoterID = r.ID
	}
	return out
}

func newBuilder(base int64, epoch int32, control bool) *batch.Builder {
	o := batch.NewOptions()
	o.BaseOffset, o.LeaderEpoch, o.Control = base, epoch, control
	return batch.NewBuilder(o)
}

func appendVersion(b *batch.Builder, nowMs int64, version int16) {
	m := records.NewKRaftVersionRecord()
	m.KRaftVersion = version
	b.Append(nowMs, records.ControlKey(records.ControlKRaftVersion), m.AppendTo(nil, 0), nil)
}

func appendVoters(b *batch.Builder, nowMs int64, set kraft.VoterSet) {
	m := records.NewVotersRecord()
	for _, v := range set.Voters() {
		r := records.VotersRecordVoter{VoterID: v.ID, VoterDirectoryID: v.Dir}
		r.KRaftVersionFeature.MinSupportedVersion, r.KRaftVersionFeature.MaxSupportedVersion = v.MinVersion, v.MaxVersion
		for _, e := range v.Endpoints {
			r.Endpoints = append(r.Endpoints, records.VotersRecordVoterEndpoint{Name: e.Name, Host: e.Host, Port: e.Port})
		}
		m.Voters = append(m.Voters, r)
	}
	b.Append(nowMs, records.ControlKey(records.ControlKRaftVoters), m.AppendTo(nil, 0), nil)
}

func votersOf(m *records.VotersRecord) (*kraft.VoterSet, error) {
	voters := make([]kraft.Voter, len(m.Voters))
	for i, r := range m.Voters {
		v := kraft.Voter{Replica: kraft.Replica{ID: r.VoterID, Dir: r.VoterDirectoryID},
			MinVersion: r.KRaftVersionFeature.MinSupportedVersion, MaxVersion: r.KRaftVersionFeature.MaxSupportedVersion}
		for _, e := range r.Endpoints {
			v.Endpoints = append(v.Endpoints, kraft.Endpoint{Name: e.Name, Host: e.Host, Port: e.Port})
		}
		voters[i] = v
	}
	set, err := kraft.NewVoterSet(voters)
	return &set, err
}

// membership returns what a control batch says about the voters.
func membership(b batch.Batch) ([]kraft.Control, error) {
	var out []kraft.Control
	for r, err := range b.Records(nil) {
		if err != nil {
			return nil, err
		}
		// Other types say nothing about members, and LeaderChange has two layouts
		// of which ParseControl reads one.
		if t, err := records.ControlType(r.Key); err == nil && t != records.ControlKRaftVersion && t != records.ControlKRaftVoters {
			continue
		}
		m, err := records.ParseControl(r.Key, r.Value)
		if err != nil {
			return nil, fmt.Errorf("offset %d: %w", r.Offset, err)
		}
		switch m := m.(type) {
		case *records.KRaftVersionRecord:
			v := m.KRaftVersion
			out = append(out, kraft.Control{Offset: r.Offset, Version: &v})
		case *records.VotersRecord:
			set, err := votersOf(m)
			if err != nil {
				return nil, fmt.Errorf("offset %d: %w", r.Offset, err)
			}
			out = append(out, kraft.Control{Offset: r.Offset, Voters: set})
		}
	}
	return out, nil
}

// parse reads a data batch's records.
func parse(b batch.Batch, buf *batch.Buffers) ([]records.Versioned, error) {
	out := make([]records.Versioned, 0, min(b.Count(), int32(b.Len()/4)))
	for r, err := range b.Records(buf) {
		if err != nil {
			return nil, err
		}
		v, err := records.ParseMetadata(r.Value)
		if err != nil {
			return nil, fmt.Errorf("offset %d: %w", r.Offset, err)
		}
		out = append(out, v)
	}
	return out, nil
}
