package batch

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// ErrShort means that the bytes end before the entry does: read more, or, at the end of a file, truncate.
var ErrShort = errors.New("batch: bytes end inside an entry")

// CorruptError says that bytes are damaged: a CRC, a length or a field that cannot be. Clients get
// CORRUPT_MESSAGE (Kafka's CorruptRecordException); in a log it makes recovery truncate.
type CorruptError struct {
	Offset int64 // base offset as found, -1 when not readable
	Reason string
}

func (e *CorruptError) Error() string {
	if e.Offset < 0 {
		return e.Reason
	}
	return fmt.Sprintf("%s (at offset %d)", e.Reason, e.Offset)
}

// Code is CORRUPT_MESSAGE.
func (e *CorruptError) Code() int16 { return kerr.CorruptMessage.Code }

// RecordError names one bad record of a refused batch, as Produce v8+ answers it (KIP-467).
type RecordError struct {
	Index   int32 // position in the batch, from 0
	Message string
}

// InvalidRecordError refuses a whole batch. Code is the answer's error code: mostly INVALID_RECORD or INVALID_TIMESTAMP, also
// MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, and UNKNOWN_SERVER_ERROR for what Kafka has no code for. Kafka sends
// Message as error_message only together with RecordErrors; otherwise its error_message is null.
type InvalidRecordError struct {
	Code         int16
	Message      string
	RecordErrors []RecordError
}

func (e *InvalidRecordError) Error() string { return e.Message }

func invalid(format string, args ...any) *InvalidRecordError {
	return &InvalidRecordError{Code: kerr.InvalidRecord.Code, Message: fmt.Sprintf(format, args...)}
}

func corruptMagic(magic int8, b []byte) error {
	return &CorruptError{Offset: int64(binary.BigEndian.Uint64(b)), Reason: fmt.Sprintf("magic %d where only record batches v2 may be", magic)}
}

// unanswerable refuses what Kafka fails on without a code of its own: clients see UNKNOWN_SERVER_ERROR, which they do not retry.
func unanswerable(format string, args ...any) *InvalidRecordError {
	return &InvalidRecordError{Code: kerr.UnknownServerError.Code, Message: fmt.Sprintf(format, args...)}
}
