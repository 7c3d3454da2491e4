package controller

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// refuse makes a refusal from one of kerr's errors and a text.
func refuse(e *kerr.Error, format string, args ...any) *Error {
	return &Error{Code: e.Code, Message: fmt.Sprintf(format, args...)}
}

// refuseCode makes a refusal without a text.
func refuseCode(e *kerr.Error) *Error { return &Error{Code: e.Code} }

// Texts that Kafka's errors have by themselves.
const (
	textUnknownTopic     = "This server does not host this topic-partition."
	textUnknownTopicID   = "This server does not host this topic ID."
	textElectionNotDone  = "Leader election not needed for topic partition."
	textNoPreferred      = "The preferred leader was not available."
	textNoEligible       = "Eligible topic partition leaders are not available."
	textTooManyRecords   = "Unable to perform operation because it would create too many records."
	maxRecordsPerRequest = 10000 // Kafka's MAX_RECORDS_PER_USER_OP
)
