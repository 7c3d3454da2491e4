// Package peer is how a node speaks to another one: as a client of Kafka's
// protocol, over one TCP connection.
//
//	Client.Do ─▶ dial (client.go, dial.go) ─▶ ApiVersions ─▶ request, answer (conn.go)
//
// A [Client] holds one connection to one node. It dials when the first request
// comes, and again at the first request after the connection has died: how long
// to wait between attempts is the caller's matter, since only the caller knows
// what the request is worth. Names are resolved anew at each dial.
//
// Requests leave in the order in which Do was called and are answered in that
// order, as Kafka promises; several may be under way. What must not wait behind
// a long poll (a vote, a heartbeat) belongs on a Client of its own.
//
// Errors are of type *[Error]. Its Kind tells what the failure proves: only
// Refused can prove that a process is gone, and only when it had answered at that
// address before ([Error.Gone], availability C3).
package peer
