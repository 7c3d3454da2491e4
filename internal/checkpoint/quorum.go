package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"

	"weir/internal/records"
	"weir/internal/uuid"
	"weir/internal/vfs"
)

// quorumJSON is the JSON form of records.QuorumStateData. Pointers tell a missing field from a zero one.
type quorumJSON struct {
	ClusterID        *string       `json:"clusterId,omitempty"` // version 0
	LeaderID         *int32        `json:"leaderId"`
	LeaderEpoch      *int32        `json:"leaderEpoch"`
	VotedID          *int32        `json:"votedId"`
	VotedDirectoryID *uuid.UUID    `json:"votedDirectoryId,omitempty"` // version 1
	AppliedOffset    *int64        `json:"appliedOffset,omitempty"`    // version 0
	CurrentVoters    *[]quorumVote `json:"currentVoters,omitempty"`    // version 0
	DataVersion      *int16        `json:"data_version"`
}

type quorumVote struct {
	VoterID int32 `json:"voterId"`
}

// ReadQuorumState reads the file quorum-state in its version 0 (kraft.version 0, with the voters) or 1 (with the
// directory that was voted for).
func ReadQuorumState(fsys vfs.FS, path string) (state records.QuorumStateData, version int16, err error) {
	data, err := vfs.ReadFile(fsys, path)
	if err != nil {
		return state, 0, err
	}
	var j quorumJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return state, 0, &Error{path, 0, err}
	}
	state = records.NewQuorumStateData()
	version, err = j.into(&state)
	if err != nil {
		return state, 0, &Error{path, 0, err}
	}
	return state, version, nil
}

func (j *quorumJSON) into(state *records.QuorumStateData) (version int16, err error) {
	if j.DataVersion == nil {
		return 0, errors.New("data_version is missing")
	}
	version = *j.DataVersion
	if lo, hi := state.VersionRange(); version < lo || version > hi {
		return 0, fmt.Errorf("data_version %d, only %d to %d are known", version, lo, hi)
	}
	for name, missing := range map[string]bool{
		"leaderId":         j.LeaderID == nil,
		"leaderEpoch":      j.LeaderEpoch == nil,
		"votedId":          j.VotedID == nil,
		"votedDirectoryId": version >= 1 && j.VotedDirectoryID == nil,
	} {
		if missing {
			return 0, fmt.Errorf("%s is missing", name)
		}
	}
	state.LeaderID, state.LeaderEpoch, state.VotedID = *j.LeaderID, *j.LeaderEpoch, *j.VotedID
	if version >= 1 {
		state.VotedDirectoryID = *j.VotedDirectoryID
		return version, nil
	}
	if j.ClusterID != nil {
		state.ClusterID = *j.ClusterID
	}
	if j.AppliedOffset != nil {
		state.AppliedOffset = *j.AppliedOffset
	}
	if j.CurrentVoters != nil {
		state.CurrentVoters = make([]records.QuorumStateDataCurrentVoter, len(*j.CurrentVoters))
		for i, v := range *j.CurrentVoters {
			state.CurrentVoters[i].VoterID = v.VoterID
		}
	}
	return version, nil
}

// WriteQuorumState replaces the file quorum-state. It must be on disk before the vote or epoch in it is acted upon;
// when this returns nil it is.
func WriteQuorumState(fsys vfs.FS, path string, s *records.QuorumStateData, version int16) error {
	j := quorumJSON{LeaderID: &s.LeaderID, LeaderEpoch: &s.LeaderEpoch, VotedID: &s.VotedID, DataVersion: &version}
	if version >= 1 {
		j.VotedDirectoryID = &s.VotedDirectoryID
	} else {
		var voters []quorumVote // null stays null
		if s.CurrentVoters != nil {
			voters = make([]quorumVote, len(s.CurrentVoters))
		}
		for i, v := range s.CurrentVoters {
			voters[i].VoterID = v.VoterID
		}
		j.ClusterID, j.AppliedOffset, j.CurrentVoters = &s.ClusterID, &s.AppliedOffset, &voters
	}
	data, err := json.Marshal(&j)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return vfs.WriteFileAtomic(fsys, path, data)
}
