package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Response is what a handler returns: exactly one of Message, NoAnswer, Fail, Pending and *FetchResponse.
type Response interface{ isResponse() }

// Message is an answer that network encodes and writes. The embedded response must carry the version it is to be
// encoded at, which is the request's (a response made by ResponseKind has it), except where Kafka answers an unknown
// version of ApiVersions in the v0 shape.
type Message struct{ kmsg.Response }

// NoAnswer means that nothing is written for this request: Produce with acks=0 that succeeded.
type NoAnswer struct{}

// Fail closes the connection once all earlier answers have left. Err says why, for the log.
type Fail struct{ Err error }

// Pending is the answer of a Produce that has appended everything and waits for the commit. The connection may execute
// a following Produce meanwhile, and nothing else. Finish is called exactly once, by the connection's writer, after Done
// is closed or the connection has died (then ctx of the request is done too); it must not block and must not return
// another Pending.
type Pending struct {
	Done   <-chan struct{}
	Finish func() Response
}

func (Message) isResponse()        {}
func (NoAnswer) isResponse()       {}
func (Fail) isResponse()           {}
func (Pending) isResponse()        {}
func (*FetchResponse) isResponse() {}

// AppendResponse appends a whole response frame, size prefix included, with the response header that belongs to the
// request's API and the response's version.
func AppendResponse(dst []byte, h Header, r kmsg.Response) []byte {
	start := len(dst)
	dst = appendResponseHeader(dst, h.CorrelationID, h.Key, r.GetVersion())
	dst = r.AppendTo(dst)
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}

// appendResponseHeader appends an empty size prefix and the response header.
func appendResponseHeader(dst []byte, correlationID int32, key, version int16) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if ResponseHeaderFlexible(key, version) {
		dst = append(dst, 0)
	}
	return dst
}

// UnsupportedVersionError is returned by ReadRequest for a version outside Supported. The caller answers
// UNSUPPORTED_VERSION where the API has a place for it and closes the connection otherwise.
type UnsupportedVersionError struct{ Key, Version int16 }

func (e *UnsupportedVersionError) Error() string {
	return fmt.Sprintf("%s version %d is not supported", Name(e.Key), e.Version)
}

// BodyError tells that a request body does not decode. As in Kafka the connection is closed: an answer could not be
// shaped for what the client meant.
type BodyError struct {
	Key, Version int16
	Err          error
}

func (e *BodyError) Error() string {
	return fmt.Sprintf("%s v%d request does not decode: %v", Name(e.Key), e.Version, e.Err)
}

func (e *BodyError) Unwrap() error { return e.Err }

// ReadRequest decodes a request body. Strings are copied; byte slices (records, member metadata, SASL bytes) alias
// body, so who keeps them beyond the answer must copy them. Array counts are checked against the bytes left before
// anything is allocated: memory stays within about eighty times the body for rubbish, and within a few MiB beside the
// records for Produce.
func ReadRequest(h Header, body []byte) (req kmsg.Request, err error) {
	r, ok := Supported(h.Key)
	if !ok || h.Version < r.Min || h.Version > r.Max {
		return nil, &UnsupportedVersionError{h.Key, h.Version}
	}
	req = kmsg.RequestForKey(h.Key)
	if req == nil {
		return nil, &UnsupportedVersionError{h.Key, h.Version}
	}
	req.SetVersion(h.Version)
	defer func() {
		if p := recover(); p != nil {
			req, err = nil, &BodyError{h.Key, h.Version, fmt.Errorf("decoder: %v", p)}
		}
	}()
	if h.Key == produceKey {
		if err := checkProduce(h.Version, body); err != nil {
			return nil, &BodyError{h.Key, h.Version, err}
		}
	}
	if err := req.ReadFrom(body); err != nil {
		return nil, &BodyError{h.Key, h.Version, err}
	}
	return req, nil
}

// ErrTooLarge is returned for an answer whose size does not fit the frame's int32 size prefix.
var ErrTooLarge = errors.New("answer does not fit a frame")
