package quorum

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/records"
	"weir/internal/wire"
)

// Origin is the client on whose behalf a broker asks the controller.
type Origin struct {
	Principal string  // as Kafka writes it: User:alice
	Host      []byte  // IP address, 4 or 16 bytes
	ClientID  *string // nil for null
}

type originKey struct{}

// OnBehalf makes Do wrap requests of ctx into an Envelope that names from, when
// the active controller is another node.
func OnBehalf(ctx context.Context, from Origin) context.Context {
	return context.WithValue(ctx, originKey{}, from)
}

func originOf(ctx context.Context) (Origin, bool) {
	o, ok := ctx.Value(originKey{}).(Origin)
	return o, ok
}

// innerID is the correlation id inside envelopes. The outer one tells answers
// apart, so this one need not differ.
const innerID = 1

// wrap makes the Envelope of a request (Kafka's ForwardingManager): the whole
// request with its header, and who sent it.
func wrap(from Origin, req kmsg.Request, version int16) *kmsg.EnvelopeRequest {
	var opts []kmsg.RequestFormatterOpt
	if from.ClientID != nil {
		opts = append(opts, kmsg.FormatterClientID(*from.ClientID))
	}
	own := req.GetVersion()
	req.SetVersion(version)
	frame := kmsg.NewRequestFormatter(opts...).AppendRequest(nil, req, innerID)
	req.SetVersion(own)
	e := kmsg.NewPtrEnvelopeRequest()
	e.RequestData = frame[4:] // without the size
	e.RequestPrincipal = principal(from.Principal)
	e.ClientHostAddress = from.Host
	return e
}

// principal is Kafka's DefaultKafkaPrincipalBuilder.serialize.
func principal(text string) []byte {
	p := records.NewDefaultPrincipalData()
	kind, name, ok := strings.Cut(text, ":")
	if !ok {
		kind, name = "User", text
	}
	p.Type, p.Name = kind, name
	return p.AppendTo([]byte{0, 0}, 0)
}

// unwrap reads the answer out of an Envelope's answer. It is given the request's
// own version, whatever version it was sent in.
func unwrap(req kmsg.Request, version int16, env *kmsg.EnvelopeResponse) (kmsg.Response, error) {
	own := req.GetVersion()
	req.SetVersion(version)
	res := req.ResponseKind()
	req.SetVersion(own)
	id, body, err := wire.ParseResponseHeader(env.ResponseData, req.Key(), version)
	if err == nil && id != innerID {
		err = fmt.Errorf("correlation id %d where %d was expected", id, innerID)
	}
	if err == nil {
		err = readSafely(res, body)
	}
	if err != nil {
		return nil, fmt.Errorf("the controller's answer to %s v%d: %w", wire.Name(req.Key()), version, err)
	}
	res.SetVersion(own)
	return res, nil
}

func readSafely(res kmsg.Response, body []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decoder: %v", p)
		}
	}()
	return res.ReadFrom(body)
}

// OpenEnvelope reads what a broker forwards: the request, and for whom. A refusal
// is one of kerr's errors: the Envelope is answered with it.
func OpenEnvelope(e *kmsg.EnvelopeRequest) (wire.Header, kmsg.Request, Origin, *kerr.Error) {
	var o Origin
	p := records.NewDefaultPrincipalData()
	raw := e.RequestPrincipal
	if len(raw) < 2 || p.ReadFrom(raw[2:], int16(binary.BigEndian.Uint16(raw))) != nil {
		return wire.Header{}, nil, o, kerr.PrincipalDeserializationFailure
	}
	h, body, err := wire.ParseHeader(e.RequestData)
	if err != nil || !Forwardable(kmsg.Key(h.Key)) || len(e.ClientHostAddress) != 4 && len(e.ClientHostAddress) != 16 {
		return h, nil, o, kerr.InvalidRequest
	}
	req, err := wire.ReadRequest(h, body)
	switch err.(type) {
	case nil:
	case *wire.UnsupportedVersionError:
		return h, nil, o, kerr.UnsupportedVersion
	default:
		return h, nil, o, kerr.InvalidRequest
	}
	return h, req, Origin{Principal: p.Type + ":" + p.Name, Host: e.ClientHostAddress, ClientID: h.ClientID}, nil
}

// Forwardable tells whether brokers forward an API to the active controller
// (ApiKeys.forwardable).
func Forwardable(k kmsg.Key) bool {
	switch k {
	case kmsg.CreateTopics, kmsg.DeleteTopics, kmsg.CreateACLs, kmsg.DeleteACLs, kmsg.AlterConfigs, kmsg.IncrementalAlterConfigs,
		kmsg.CreatePartitions, kmsg.CreateDelegationToken, kmsg.RenewDelegationToken, kmsg.ExpireDelegationToken, kmsg.ElectLeaders,
		kmsg.AlterPartitionAssignments, kmsg.ListPartitionReassignments, kmsg.AlterClientQuotas, kmsg.AlterUserSCRAMCredentials,
		kmsg.DescribeQuorum, kmsg.UpdateFeatures, kmsg.UnregisterBroker, kmsg.AddRaftVoter, kmsg.RemoveRaftVoter:
		return true
	}
	return false
}
