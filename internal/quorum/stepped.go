package quorum

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Poll does everything that is due on this node, in place of Run: the metadata log, the
// controller, the applying of images and the writing of snapshots, all in the caller's
// goroutine. It returns when to call it again at the latest.
func (n *Node) Poll() (next time.Time, err error) {
	for {
		if next, err = n.o.Log.Poll(); err != nil {
			return next, err
		}
		end, leader := n.o.Log.LogEnd(), n.o.Log.Leader()
		if n.machine != nil {
			at, err := n.machine.Poll()
			if err != nil {
				return next, err
			}
			if !at.IsZero() && at.Before(next) {
				next = at
			}
		}
		some, err := n.applyFed()
		if err != nil {
			return next, err
		}
		select {
		case img := <-n.snapshot.due:
			n.writeSnapshot(img)
			some = true
		default:
		}
		if !some && n.o.Log.LogEnd() == end && n.o.Log.Leader() == leader {
			return next, nil
		}
	}
}

// Submit hands a request to the controller of this node, in place of Do. done is called
// once, from within Poll or at once, when the decision is committed or refused;
// statemachine.ErrNotLeader: this node is not the active controller, or no longer, and
// the request may or may not have taken effect.
func (n *Node) Submit(req kmsg.Request, done func(kmsg.Response, error)) {
	f, err := n.route(req)
	if err != nil {
		done(nil, err)
		return
	}
	n.machine.Submit(kmsg.NameForKey(req.Key()), n.write(f), func(res any, err error) {
		if err != nil {
			done(nil, err)
			return
		}
		done(res.(kmsg.Response), nil)
	})
}
