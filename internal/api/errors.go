package api

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"weir/internal/batch"
	"weir/internal/partition"
	"weir/internal/replication"
	"weir/internal/statemachine"
	"weir/internal/storage"
)

// refusal is an error this package makes itself: a code and the text that the
// answer carries where its version has a place for it.
type refusal struct {
	kind *kerr.Error
	text string
}

func (r *refusal) Error() string { return r.text }

func refuse(kind *kerr.Error, text string) error { return &refusal{kind, text} }

var (
	errUnknownPartition = refuse(kerr.UnknownTopicOrPartition, "This server does not host this topic-partition.")
)

// code is the Kafka error code of an error of any lower package, 0 for nil.
func code(err error) int16 { return kind(err).Code }

// kind maps an error to Kafka's. What is not listed is a bug or a disk that
// nobody named: UNKNOWN_SERVER_ERROR.
func kind(err error) *kerr.Error {
	if err == nil {
		return &kerr.Error{}
	}
	var (
		known    *kerr.Error
		refused  *refusal
		invalid  *batch.InvalidRecordError
		corrupt  *batch.CorruptError
		moved    *partition.NotLeaderError
		epoch    *partition.EpochError
		few      *partition.NotEnoughReplicasError
		notYet   *partition.OffsetNotAvailableError
		outRange *storage.OutOfRangeError
		disk     *storage.DiskError
		damaged  *storage.CorruptError
		large    *storage.TooLargeError
		bad      *storage.BadBatchError
		hosted   *replication.NotHostedError
		offline  *replication.OfflineError
	)
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &refused):
		return refused.kind
	case errors.As(err, &invalid):
		if e, ok := kerr.ErrorForCode(invalid.Code).(*kerr.Error); ok {
			return e
		}
		return kerr.InvalidRecord
	case errors.As(err, &corrupt), errors.As(err, &bad):
		return kerr.CorruptMessage
	case errors.As(err, &moved):
		return kerr.NotLeaderForPartition
	case errors.As(err, &epoch):
		if epoch.Fenced() {
			return kerr.FencedLeaderEpoch
		}
		return kerr.UnknownLeaderEpoch
	case errors.As(err, &few):
		if few.AfterAppend {
			return kerr.NotEnoughReplicasAfterAppend
		}
		return kerr.NotEnoughReplicas
	case errors.As(err, &notYet):
		return kerr.OffsetNotAvailable
	case errors.As(err, &outRange):
		return kerr.OffsetOutOfRange
	case errors.As(err, &large):
		return kerr.RecordListTooLarge
	case errors.As(err, &hosted):
		return kerr.NotLeaderForPartition
	case errors.As(err, &disk), errors.As(err, &damaged), errors.As(err, &offline), errors.Is(err, storage.ErrClosed):
		return kerr.KafkaStorageError
	}
	return kindOfSentinel(err)
}

func kindOfSentinel(err error) *kerr.Error {
	switch {
	case errors.Is(err, storage.ErrOutOfOrderSequence):
		return kerr.OutOfOrderSequenceNumber
	case errors.Is(err, storage.ErrInvalidEpoch):
		return kerr.InvalidProducerEpoch
	case errors.Is(err, storage.ErrInvalidTxnState):
		return kerr.InvalidTxnState
	case errors.Is(err, storage.ErrCoordinatorFenced):
		return kerr.TransactionCoordinatorFenced
	case errors.Is(err, statemachine.ErrNotLeader):
		return kerr.NotController
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return kerr.RequestTimedOut
	}
	return kerr.UnknownServerError
}

// ownText is the text of an error that has one of its own; nil where Kafka leaves
// it to the code.
func ownText(err error) *string {
	var known *kerr.Error
	if err == nil || errors.As(err, &known) {
		return nil
	}
	return messageOf(err)
}

// messageOf is the text for an answer's error_message: nil for no error (case
// K33), Kafka's own text of the code where we have nothing to add.
func messageOf(err error) *string {
	if err == nil {
		return nil
	}
	text := err.Error()
	var known *kerr.Error
	if errors.As(err, &known) {
		text = known.Description
	}
	return &text
}
