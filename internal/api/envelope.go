package api

import (
	"context"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/network"
	"weir/internal/quorum"
	"weir/internal/wire"
)

// Envelope serves what brokers forward for their clients (API key 58, KIP-590),
// version 0, on controller listeners: the request inside is executed as if its
// client had sent it, and its answer goes back inside the Envelope's. A
// controller that is not active answers NOT_CONTROLLER, and the broker looks for
// the one that is.
type Envelope struct{ table *Table }

// Bind tells which table executes the requests inside; it is called once, when the table is made.
func (h *Envelope) Bind(t *Table) { h.table = t }

// Key is Envelope.
func (*Envelope) Key() kmsg.Key { return kmsg.Envelope }

// Handle opens the envelope, has the request executed and wraps the answer.
func (h *Envelope) Handle(ctx context.Context, c *Call, r kmsg.Request) wire.Response {
	env := as[*kmsg.EnvelopeRequest](r)
	res := responseTo[*kmsg.EnvelopeResponse](r)
	header, req, _, refused := quorum.OpenEnvelope(env)
	var inner Handler
	if refused == nil {
		if inner = h.table.handlers[header.Key]; inner == nil {
			refused = kerr.UnsupportedVersion // the broker tells its client that the cluster does not serve this
		}
	}
	if refused != nil {
		res.ErrorCode = refused.Code
		return reply(res)
	}
	answer := inner.Handle(ctx, &Call{Conn: c.Conn, Header: header, Body: env.RequestData}, req)
	m, ok := answer.(wire.Message)
	switch {
	case !ok:
		return answer
	case tellsNotController(m.Response):
		res.ErrorCode = kerr.NotController.Code
	default:
		res.ResponseData = wire.AppendResponse(nil, header, m.Response)[4:] // without the size
	}
	return reply(res)
}

// tellsNotController tells whether an answer says in any row that its sender is
// not the active controller (AbstractResponse.errorCounts).
func tellsNotController(res kmsg.Response) bool {
	is := kerr.NotController.Code
	switch r := res.(type) {
	case *kmsg.CreateTopicsResponse:
		return anyRow(r.Topics, func(x kmsg.CreateTopicsResponseTopic) bool { return x.ErrorCode == is })
	case *kmsg.DeleteTopicsResponse:
		return anyRow(r.Topics, func(x kmsg.DeleteTopicsResponseTopic) bool { return x.ErrorCode == is })
	case *kmsg.CreatePartitionsResponse:
		return anyRow(r.Topics, func(x kmsg.CreatePartitionsResponseTopic) bool { return x.ErrorCode == is })
	case *kmsg.AlterConfigsResponse:
		return anyRow(r.Resources, func(x kmsg.AlterConfigsResponseResource) bool { return x.ErrorCode == is })
	case *kmsg.IncrementalAlterConfigsResponse:
		return anyRow(r.Resources, func(x kmsg.IncrementalAlterConfigsResponseResource) bool { return x.ErrorCode == is })
	case *kmsg.UpdateFeaturesResponse:
		return r.ErrorCode == is
	case *kmsg.ElectLeadersResponse:
		return r.ErrorCode == is
	case *kmsg.UnregisterBrokerResponse:
		return r.ErrorCode == is
	case *kmsg.AlterPartitionAssignmentsResponse:
		return r.ErrorCode == is
	case *kmsg.ListPartitionReassignmentsResponse:
		return r.ErrorCode == is
	}
	return false
}

func anyRow[T any](rows []T, is func(T) bool) bool {
	for _, x := range rows {
		if is(x) {
			return true
		}
	}
	return false
}

// origin is the client of a connection, as an Envelope names it.
func origin(conn *network.Conn, h wire.Header) quorum.Origin {
	o := quorum.Origin{Principal: conn.Principal(), ClientID: h.ClientID, Host: net.IPv4(127, 0, 0, 1).To4()}
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		if o.Host = a.IP.To4(); o.Host == nil {
			o.Host = a.IP.To16()
		}
	}
	return o
}
