package sim

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/storage/format"
	"weir/internal/uuid"
)

// member is a broker's place in the cluster: what package lifecycle does, stepped.
type member struct {
	n           *node
	incarnation uuid.UUID
	previous    int64 // broker epoch of the last clean stop, -1
	epoch       int64 // registered, -1
	registered  bool
	fenced      bool
	waiting     *call
	next        time.Time
	stopping    bool
	told        int64 // metadata offset that was told last
}

// step sends what is due.
func (m *member) step() {
	w := m.n.w
	img := m.n.q.Images().Image()
	now := w.clock.Now()
	if m.waiting != nil && !m.waiting.done {
		return
	}
	if now.Before(m.next) && !(m.registered && m.fenced && img.Provenance.Offset > m.told) {
		m.n.wakeAt(m.next)
		return
	}
	if !m.registered {
		if img.Features().Metadata == 0 || !m.n.q.Images().Current(img) {
			m.again(20)
			return
		}
		m.register()
		return
	}
	m.heartbeat(img.Provenance.Offset)
}

func (m *member) again(ms int) {
	m.next = m.n.w.clock.Now().Add(time.Duration(ms) * time.Millisecond)
	m.n.wakeAt(m.next)
}

func (m *member) register() {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.Version = req.MaxVersion()
	req.BrokerID, req.ClusterID, req.IncarnationID, req.PreviousBrokerEpoch = m.n.id, clusterID, m.incarnation, m.previous
	l := kmsg.NewBrokerRegistrationRequestListener()
	l.Name, l.Host, l.Port = "P", "sim", uint16(9000+m.n.id)
	req.Listeners = append(req.Listeners, l)
	for _, f := range format.Served(false) {
		r := kmsg.NewBrokerRegistrationRequestFeature()
		r.Name, r.MinSupportedVersion, r.MaxSupportedVersion = f.Name, f.Min, f.Max
		req.Features = append(req.Features, r)
	}
	req.LogDirs = append(req.LogDirs, dirOf(m.n.id))
	m.waiting = m.n.control("heartbeat", req, func(res kmsg.Response) {
		r, ok := res.(*kmsg.BrokerRegistrationResponse)
		if !ok || r.ErrorCode != 0 {
			m.again(25)
			return
		}
		m.epoch, m.registered, m.fenced, m.told = r.BrokerEpoch, true, true, -1
		m.again(0)
	})
}

func (m *member) heartbeat(offset int64) {
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.Version = req.MaxVersion()
	req.BrokerID, req.BrokerEpoch, req.CurrentMetadataOffset, req.WantShutdown = m.n.id, m.epoch, offset, m.stopping
	m.told = offset
	m.waiting = m.n.control("heartbeat", req, func(res kmsg.Response) {
		r, ok := res.(*kmsg.BrokerHeartbeatResponse)
		switch {
		case !ok:
			m.again(25)
		case r.ErrorCode == kerr.StaleBrokerEpoch.Code || r.ErrorCode == kerr.BrokerIDNotRegistered.Code:
			m.registered = false
			m.again(0)
		case r.ErrorCode != 0:
			m.again(25)
		case m.stopping && r.ShouldShutdown:
			m.n.leave()
		case m.stopping:
			m.again(10)
		default:
			m.fenced = r.IsFenced
			m.again(heartbeatMs)
		}
	})
}
