// Package network is the server side of Kafka's wire protocol: listeners, connections, the order of requests and
// answers, limits on connections, frames and memory, and the way answers leave. It knows no request: a Handler executes
// them.
//
// # One connection
//
// A goroutine per connection reads a frame, executes it and, as a rule, writes the answer. Only when a Produce is
// answered with wire.Pending (everything appended, waiting for the commit) a second goroutine starts that completes and
// writes the answers still owed, in order; meanwhile the first may read and execute a following Produce. Any other
// request waits until nothing is owed. At most maxPending answers are owed; then reading stops.
//
//	socket → frame.go   size check, memory budget, pooled buffer
//	       → conn.go    header, order, Handler.Handle
//	       → answer.go  encode; owed answers in order; throttle
//	       → send.go    sendfile(2) for large regions, one write for the rest → socket
//
// A connection closes after the earlier answers have left: on a bad frame, on wire.Fail, at the end of the peer's
// stream. It closes at once when writing fails or the server's patience at shutdown ends.
//
// # Lock order
//
// Server.mu, then Conn.mu. admission.mu and hangups.mu are leaves. None is held while reading, writing or executing.
package network
