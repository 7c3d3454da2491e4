package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"weir/internal/vfs"
)

// CleanShutdown is the file .kafka_cleanshutdown, written as the last thing of a clean stop and removed at start:
//
//	{"version":0,"brokerEpoch":12}
type CleanShutdown struct {
	BrokerEpoch int64 // of the run that stopped; -1 when the file does not tell (before 3.8 it was empty)
}

// ReadCleanShutdown reads a .kafka_cleanshutdown. A file that cannot be understood still marks a clean stop: the
// result is then valid, with BrokerEpoch -1, beside an *Error.
func ReadCleanShutdown(fsys vfs.FS, path string) (CleanShutdown, error) {
	data, err := vfs.ReadFile(fsys, path)
	if err != nil {
		return CleanShutdown{}, err
	}
	none := CleanShutdown{BrokerEpoch: -1}
	if len(bytes.TrimSpace(data)) == 0 {
		return none, nil
	}
	var text struct {
		Version     *int   `json:"version"`
		BrokerEpoch *int64 `json:"brokerEpoch"`
	}
	if err := json.Unmarshal(data, &text); err != nil {
		return none, &Error{path, 0, err}
	}
	switch {
	case text.Version == nil || *text.Version != 0:
		return none, &Error{path, 0, errors.New("version 0 was expected")}
	case text.BrokerEpoch == nil:
		return none, &Error{path, 0, errors.New("brokerEpoch is missing")}
	}
	return CleanShutdown{BrokerEpoch: *text.BrokerEpoch}, nil
}

// WriteCleanShutdown replaces a .kafka_cleanshutdown.
func WriteCleanShutdown(fsys vfs.FS, path string, c CleanShutdown) error {
	return vfs.WriteFileAtomic(fsys, path, fmt.Appendf(nil, `{"version":0,"brokerEpoch":%d}`, c.BrokerEpoch))
}
