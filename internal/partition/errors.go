package partition

import "fmt"

// NotLeaderError refuses a request that only the leader may answer. Leader is
// the present one, None when there is none.
type NotLeaderError struct {
	Topic               string
	Partition           int32
	Leader, LeaderEpoch int32
}

func (e *NotLeaderError) Error() string {
	return fmt.Sprintf("this broker does not lead %s-%d (leader %d, leader epoch %d)", e.Topic, e.Partition, e.Leader, e.LeaderEpoch)
}

// EpochError refuses a request whose leader epoch is not the present one: an
// older one is fenced, a newer one not known here yet (KIP-320).
type EpochError struct {
	Topic        string
	Partition    int32
	Asked, Have  int32
	CurrentLeads bool
}

func (e *EpochError) Error() string {
	return fmt.Sprintf("request for %s-%d has leader epoch %d, the leader epoch here is %d", e.Topic, e.Partition, e.Asked, e.Have)
}

// Fenced tells an old epoch from one that is not known yet.
func (e *EpochError) Fenced() bool { return e.Asked < e.Have }

// NotEnoughReplicasError refuses a write with acks=all. AfterAppend means that
// the ISR shrank after the append: the record stays in the log.
type NotEnoughReplicasError struct {
	Topic       string
	Partition   int32
	ISR         []int32
	Need        int
	AfterAppend bool
}

func (e *NotEnoughReplicasError) Error() string {
	after := ""
	if e.AfterAppend {
		after = "; the records were appended before the ISR shrank"
	}
	return fmt.Sprintf("%s-%d: the in-sync replicas are %v, acks=all needs %d of them%s", e.Topic, e.Partition, e.ISR, e.Need, after)
}

// OffsetNotAvailableError is the answer of a new leader that does not know the
// latest committed offset yet (KIP-207).
type OffsetNotAvailableError struct {
	Topic     string
	Partition int32
}

func (e *OffsetNotAvailableError) Error() string {
	return fmt.Sprintf("%s-%d has a new leader whose high watermark has not reached the start of its epoch", e.Topic, e.Partition)
}
