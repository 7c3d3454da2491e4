package replication

import (
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Fetcher is what copies from one leader, for the owner of a Manager that is Stepped:
// one request after another, each of which ends with Answered or Lost.
type Fetcher struct{ f *fetcher }

// Fetchers lists the fetchers there are, in the order of their leaders.
func (m *Manager) Fetchers() []Fetcher {
	m.fetchers.mu.Lock()
	defer m.fetchers.mu.Unlock()
	var out []Fetcher
	for _, x := range m.fetchers.listLocked() {
		out = append(out, Fetcher{x})
	}
	return out
}

// Leader is whom the fetcher copies from.
func (x Fetcher) Leader() int32 { return x.f.key.leader }

// Next returns what to ask the leader now, a Fetch or ListOffsets. Nil: nothing before
// at, which is zero when not before something else happens.
func (x Fetcher) Next() (req kmsg.Request, at time.Time) {
	req, ms, ended := x.f.next()
	if ended || req == nil && ms == math.MaxInt64 {
		return nil, time.Time{}
	}
	return req, time.UnixMilli(ms)
}

// Answered hands in the answer.
func (x Fetcher) Answered(res kmsg.Response) { x.f.answered(res) }

// Lost tells why there is no answer.
func (x Fetcher) Lost(err error) { x.f.lost(err) }

// NextAlter returns the ISR changes to ask the controller for now, those without an
// outcome included; nil: none. sweep is when to look again at the latest.
func (m *Manager) NextAlter() (req *kmsg.AlterPartitionRequest, sweep time.Time) {
	if list := m.proposals.next(m); len(list) > 0 {
		req = m.alterRequest(list)
	}
	return req, m.proposals.at()
}

// Altered takes the controller's answer to what NextAlter returned last. Without an
// answer it is not called, and NextAlter asks again.
func (m *Manager) Altered(res *kmsg.AlterPartitionResponse) { m.altered(m.proposals.open, res) }
