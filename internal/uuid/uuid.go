// Package uuid is Kafka's Uuid (org.apache.kafka.common.Uuid): 16 bytes, written as text in the URL-safe base64 alphabet
// without padding (22 characters). It names topics, log directories, broker incarnations and cluster members.
//
// The ids 0 to 99 are reserved: Zero means "none", One is the topic of the cluster metadata, and log directory ids
// use the first three for directories that have no id of their own. Random never returns a reserved id.
package uuid

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
)

// Len is the number of bytes of a UUID.
const Len = 16

// reserved is how many of the lowest ids Random never returns (Kafka's DirectoryId.RESERVED, Uuid.RESERVED).
const reserved = 100

// UUID is 16 bytes in network order. It is comparable and its zero value is Zero.
type UUID [Len]byte

// Ids with a meaning of their own. They are constants in spirit: nothing may assign to them.
var (
	// Zero stands for "no id".
	Zero = UUID{}
	// One is reserved beside Zero; it is the same value as MetadataTopic.
	One = fromLow(1)
	// MetadataTopic is the id of the topic __cluster_metadata.
	MetadataTopic = fromLow(1)

	// DirMigrating says that the log directory of a replica is not known because directories had no ids yet.
	DirMigrating = fromLow(0)
	// DirUnassigned says that no log directory was chosen for a replica yet.
	DirUnassigned = fromLow(1)
	// DirLost says that a replica stands in a log directory that is offline.
	DirLost = fromLow(2)
)

func fromLow(n uint64) UUID {
	var u UUID
	binary.BigEndian.PutUint64(u[8:], n)
	return u
}

// Parse reads the text form: 22 characters, or 24 with the two padding characters that Kafka also takes.
func Parse(s string) (UUID, error) {
	t := s
	if len(t) == 24 && t[22:] == "==" {
		t = t[:22]
	}
	if len(t) != 22 {
		return UUID{}, fmt.Errorf("uuid %q: want 22 base64url characters, have %d", s, len(s))
	}
	var u UUID
	// The decoder skips line breaks, so the count is checked too.
	n, err := base64.RawURLEncoding.Decode(u[:], []byte(t))
	if err != nil {
		return UUID{}, fmt.Errorf("uuid %q: %w", s, err)
	}
	if n != Len {
		return UUID{}, fmt.Errorf("uuid %q: decodes to %d bytes, want %d", s, n, Len)
	}
	return u, nil
}

// String is the text form, 22 characters.
func (u UUID) String() string {
	return base64.RawURLEncoding.EncodeToString(u[:])
}

// IsZero reports whether u is Zero. (It also lets encoding/json omit it.)
func (u UUID) IsZero() bool { return u == UUID{} }

// Reserved reports whether u is one of the first 100 ids, which no topic or directory may get.
func (u UUID) Reserved() bool {
	return binary.BigEndian.Uint64(u[:8]) == 0 && binary.BigEndian.Uint64(u[8:]) < reserved
}

// Compare orders ids by their bytes as unsigned numbers.
func (u UUID) Compare(v UUID) int {
	for i := range u {
		if u[i] != v[i] {
			if u[i] < v[i] {
				return -1
			}
			return 1
		}
	}
	return 0
}

// MarshalText implements encoding.TextMarshaler.
func (u UUID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (u *UUID) UnmarshalText(b []byte) error {
	v, err := Parse(string(b))
	if err != nil {
		return err
	}
	*u = v
	return nil
}

// Random makes a version 4 UUID from the dice r. It is never reserved, and its text never starts with '-' (a tool
// would take that for a flag). It panics when r fails: without dice nothing sensible can go on.
func Random(r io.Reader) UUID {
	for {
		var u UUID
		if _, err := io.ReadFull(r, u[:]); err != nil {
			panic(fmt.Sprintf("uuid: no random bytes: %v", err))
		}
		u[6] = u[6]&0x0f | 0x40
		u[8] = u[8]&0x3f | 0x80
		// The first six bits choose the first character; 62 is '-'.
		if !u.Reserved() && u[0]>>2 != 62 {
			return u
		}
	}
}
