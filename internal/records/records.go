// Package records holds every message that Kafka persists or replicates outside of its client protocol: the records of
// the metadata log, of the coordinators' topics, control records, and what stands in small files. The code is generated
// from the texts in records/schema (see package schema for their form); this file and control.go add the frames.
//
// A message is a plain struct. New… gives it Kafka's defaults, AppendTo writes one version, ReadFrom reads one. For
// arrays and bytes that may be null, nil is null and an empty slice is empty; where null is not possible both are
// empty. A nullable field without a declared default starts as null; when it is a tagged one it starts empty,
// because that is what its absence means. Reading checks each length against the bytes that
// are left before it allocates, and copies: a message never refers to the bytes it was read from.
package records

//go:generate go run ./gen -out .

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Message is any versioned message; the pointer types of this package.
type Message interface {
	// AppendTo appends the message, written as version, to dst. It panics on a version that does not exist.
	AppendTo(dst []byte, version int16) []byte
	// ReadFrom sets the message from src, which must hold exactly one.
	ReadFrom(src []byte, version int16) error
	// ReadPrefix sets the message from the front of src and returns what follows.
	ReadPrefix(src []byte, version int16) (rest []byte, err error)
	// VersionRange is the range of versions that exist.
	VersionRange() (lowest, highest int16)
}

// Metadata is a record of the cluster metadata log: a pointer to one of the *Record structs of schema/metadata.txt, or
// an *Unknown.
type Metadata interface {
	APIKey() int16
	AppendTo(dst []byte, version int16) []byte
	ReadFrom(src []byte, version int16) error
	HighestVersion() int16
}

// Versioned is a metadata record and the version it is or was written in (Kafka's ApiMessageAndVersion).
type Versioned struct {
	Record  Metadata
	Version int16
}

// metadataFrame is the version of the frame around a metadata record.
const metadataFrame = 1

// AppendMetadata appends the value of a record of the metadata log:
//
//	uvarint frame version (1) │ uvarint apiKey │ uvarint version │ body
func AppendMetadata(dst []byte, v Versioned) []byte {
	dst = append(dst, metadataFrame)
	dst = binary.AppendUvarint(dst, uint64(v.Record.APIKey()))
	dst = binary.AppendUvarint(dst, uint64(v.Version))
	return v.Record.AppendTo(dst, v.Version)
}

// ParseMetadata reads what AppendMetadata wrote. A record of an unknown apiKey or version is not an error: it comes
// back as *Unknown and is written back unchanged. The result keeps no reference to value.
func ParseMetadata(value []byte) (Versioned, error) {
	frame, rest, err := takeShort(value, "frame version")
	if err != nil {
		return Versioned{}, err
	}
	if frame != metadataFrame {
		return Versioned{}, fmt.Errorf("metadata record: frame version %d, only %d is known", frame, metadataFrame)
	}
	key, rest, err := takeShort(rest, "apiKey")
	if err != nil {
		return Versioned{}, err
	}
	version, body, err := takeShort(rest, "version")
	if err != nil {
		return Versioned{}, err
	}
	m := newMetadata(key)
	if m == nil || version > m.HighestVersion() {
		return Versioned{&Unknown{Key: key, Version: version, Body: append([]byte(nil), body...)}, version}, nil
	}
	if err := m.ReadFrom(body, version); err != nil {
		return Versioned{}, fmt.Errorf("metadata record: %w", err)
	}
	return Versioned{m, version}, nil
}

// takeShort reads a uvarint that must fit into a positive int16.
func takeShort(b []byte, what string) (int16, []byte, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 || v > 1<<15-1 {
		return 0, nil, fmt.Errorf("metadata record: no valid %s", what)
	}
	return int16(v), b[n:], nil
}

// Unknown is a metadata record whose apiKey or version this program does not know. It is kept as it came.
type Unknown struct {
	Key, Version int16
	Body         []byte
}

// APIKey is the type id found in the frame.
func (u *Unknown) APIKey() int16 { return u.Key }

// HighestVersion is the version in which the record came, the only one that it can be written in.
func (u *Unknown) HighestVersion() int16 { return u.Version }

// AppendTo appends the body as it came.
func (u *Unknown) AppendTo(dst []byte, version int16) []byte {
	checkVersion(fmt.Sprintf("record %d", u.Key), version, u.Version, u.Version)
	return append(dst, u.Body...)
}

// errUnknownRead is returned for a use that has no meaning.
var errUnknownRead = errors.New("records.Unknown is made by ParseMetadata alone")

// ReadFrom always fails: without the frame the type of the record is lost.
func (u *Unknown) ReadFrom([]byte, int16) error { return errUnknownRead }
