package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Header is the part of a request that every API shares (Kafka's RequestHeaderData).
type Header struct {
	Key, Version  int16
	CorrelationID int32
	// ClientID is nil when the client sent null. It does not alias the frame.
	ClientID *string
}

// minHeaderLen is the size of key, version and correlation id, the shortest request header (v0).
const minHeaderLen = 8

// HeaderError tells why the first bytes of a frame are no request header. The connection that sent it must be closed:
// nothing after it can be trusted.
type HeaderError struct{ Reason string }

func (e *HeaderError) Error() string { return "bad request header: " + e.Reason }

// ParseHeader splits a frame, given without its size prefix, into header and body. The body aliases the frame.
//
// A known API at an unknown version is not an error: the header is read as that API's newest known form, so that the
// caller can answer ApiVersions in the v0 shape (KIP-511) and refuse the rest. An unknown API key is a *HeaderError.
func ParseHeader(frame []byte) (Header, []byte, error) { return ParseHeaderReusing(frame, nil) }

// ParseHeaderReusing is ParseHeader for a caller that reads many requests of one client: when the client id equals
// *last, last itself is put into the header and nothing is allocated.
func ParseHeaderReusing(frame []byte, last *string) (Header, []byte, error) {
	if len(frame) < minHeaderLen {
		return Header{}, nil, &HeaderError{fmt.Sprintf("%d bytes are too few for a request", len(frame))}
	}
	h := Header{
		Key:           int16(binary.BigEndian.Uint16(frame)),
		Version:       int16(binary.BigEndian.Uint16(frame[2:])),
		CorrelationID: int32(binary.BigEndian.Uint32(frame[4:])),
	}
	api := lookup(h.Key)
	if api == nil {
		return h, nil, &HeaderError{fmt.Sprintf("unknown API key %d (version %d)", h.Key, h.Version)}
	}
	body := frame[minHeaderLen:]
	if len(body) < 2 {
		return h, nil, &HeaderError{"cut inside the client id"}
	}
	n := int(int16(binary.BigEndian.Uint16(body)))
	body = body[2:]
	switch {
	case n < -1:
		return h, nil, &HeaderError{fmt.Sprintf("client id length %d", n)}
	case n > len(body):
		return h, nil, &HeaderError{"cut inside the client id"}
	case n >= 0:
		if last != nil && *last == string(body[:n]) {
			h.ClientID = last
		} else {
			id := string(body[:n])
			h.ClientID = &id
		}
		body = body[n:]
	}
	if h.Version >= api.flexible {
		rest, err := skipTags(body)
		if err != nil {
			return h, nil, err
		}
		body = rest
	}
	return h, body, nil
}

// ParseResponseHeader splits an answer's frame, given without its size prefix, into correlation id and body; key and
// version are those of the request. The body aliases the frame.
func ParseResponseHeader(frame []byte, key, version int16) (correlationID int32, body []byte, err error) {
	if len(frame) < 4 {
		return 0, nil, &HeaderError{fmt.Sprintf("%d bytes are too few for an answer", len(frame))}
	}
	correlationID, body = int32(binary.BigEndian.Uint32(frame)), frame[4:]
	if ResponseHeaderFlexible(key, version) {
		body, err = skipTags(body)
	}
	return correlationID, body, err
}

var errTags = errors.New("cut inside the tagged fields")

// skipTags steps over tagged fields: a count, then tag, size and bytes of each, all numbers as unsigned varints.
func skipTags(b []byte) ([]byte, error) {
	count, b, err := uvarint(b)
	if err != nil {
		return nil, err
	}
	for ; count > 0; count-- {
		if _, b, err = uvarint(b); err != nil {
			return nil, err
		}
		var size uint64
		if size, b, err = uvarint(b); err != nil {
			return nil, err
		}
		if size > uint64(len(b)) {
			return nil, &HeaderError{errTags.Error()}
		}
		b = b[size:]
	}
	return b, nil
}

func uvarint(b []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 || v > 1<<32-1 {
		return 0, nil, &HeaderError{errTags.Error()}
	}
	return v, b[n:], nil
}

// FlexibleRequest reports whether requests of this API and version use header v2, and answers header v1 (but
// ApiVersions, see ResponseHeaderFlexible).
func FlexibleRequest(key, version int16) bool {
	api := lookup(key)
	return api != nil && version >= api.flexible
}

// ResponseHeaderFlexible reports whether answers of this API and version carry tagged fields in their header.
func ResponseHeaderFlexible(key, version int16) bool {
	return key != apiVersionsKey && FlexibleRequest(key, version)
}
