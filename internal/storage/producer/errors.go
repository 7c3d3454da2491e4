package producer

import (
	"errors"
	"fmt"
)

// Kinds of refusal, to be tested with errors.Is. Each stands for one Kafka
// error code; the partition answers it and nothing was written.
var (
	ErrOutOfOrderSequence = errors.New("out of order sequence number")             // OUT_OF_ORDER_SEQUENCE_NUMBER
	ErrInvalidEpoch       = errors.New("invalid producer epoch")                   // INVALID_PRODUCER_EPOCH
	ErrInvalidTxnState    = errors.New("invalid transaction state")                // INVALID_TXN_STATE
	ErrCoordinatorFenced  = errors.New("transaction coordinator epoch was fenced") // TRANSACTION_COORDINATOR_FENCED
)

// Error is a refused batch: Kind is one of the Err values, the text names
// producer, offset and numbers as Kafka does.
type Error struct {
	Kind error
	Text string
}

func (e *Error) Error() string { return e.Text }
func (e *Error) Unwrap() error { return e.Kind }

func refuse(kind error, format string, args ...any) *Error {
	return &Error{Kind: kind, Text: fmt.Sprintf(format, args...)}
}
