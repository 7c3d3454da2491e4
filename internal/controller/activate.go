package controller

import (
	"weir/internal/image"
	"weir/internal/records"
)

// Activate makes this node the active controller: call it once per leadership, with everything in the log applied, and append its
// records first. On an empty log they are the bootstrap records; a metadata transaction that the last controller left open is
// aborted. Every broker that is not fenced gets a fresh session, because its heartbeats went elsewhere until now.
func (c *Core) Activate(s Step) Result {
	c.soft = soft{active: true, brokers: map[int32]*session{}}
	for b := range s.Image.Brokers() {
		c.register(b.ID, b.Epoch, b.Fenced, s.NowMs)
	}
	// The broker of this very node: if it is not the one in this process, then that process is gone (it held the lock of our
	// directories), and its successor need not wait for a session to run out (pain P12).
	if own := c.soft.brokers[c.o.NodeID]; own != nil && c.o.BrokerHere {
		own.contactMs = noContact
	}
	c.soft.nextNoOpMs = s.NowMs + c.o.NoOpIntervalMs
	c.soft.nextUncleanMs = s.NowMs + c.o.UncleanIntervalMs
	c.soft.nextBalanceMs = s.NowMs + c.o.RebalanceIntervalMs

	var recs []records.Versioned
	if s.Image.InTransaction() {
		r := records.NewAbortTransactionRecord()
		r.Reason = ptr("Controller failover")
		recs = append(recs, records.Versioned{Record: &r})
	}
	if s.Image.Visible().Features().Metadata != 0 || len(c.o.Bootstrap) == 0 {
		return Result{Records: recs}
	}
	return Result{Records: append(recs, c.bootstrap(s.Image.Visible())...), Notes: []string{"bootstrap records from " + c.o.BootstrapSource}}
}

// bootstrap wraps the bootstrap records in a metadata transaction where their own metadata.version has those.
func (c *Core) bootstrap(img *image.Image) []records.Versioned {
	d := image.NewDelta(img)
	recs := replay(d, nil, c.o.Bootstrap)
	after := d.Image()
	if after.Features().ELR() {
		if _, ok := after.Configs(image.ResourceBroker, "")[keyMinISR]; !ok {
			recs = append(recs, image.ConfigRecord(image.Resource{Type: image.ResourceBroker}, keyMinISR, ptr(c.staticMinISR())))
		}
	}
	if !after.Features().Transactions() {
		return recs
	}
	begin, end := records.NewBeginTransactionRecord(), records.NewEndTransactionRecord()
	begin.Name = ptr("Bootstrap records")
	out := append([]records.Versioned{{Record: &begin}}, recs...)
	return append(out, records.Versioned{Record: &end})
}
