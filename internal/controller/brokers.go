package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/records"
	"weir/internal/uuid"
)

// noEpoch is what stands for the epoch of a broker that was never registered; no request ever has it as its previous epoch.
const noEpoch int64 = -2

// RegisterBroker handles BrokerRegistration (KIP-631): a broker came up. The same incarnation amends its registration and keeps its
// epoch; a new one gets a new epoch, starts fenced, and leaves the ISR wherever it still was. From v3 on the request names
// the epoch of the last clean shutdown; when that is not the registered epoch the broker may have lost what it had not
// synced, so it leaves the ELR too (KIP-966).
func (c *Core) RegisterBroker(s Step, req *kmsg.BrokerRegistrationRequest) Result {
	resp := kmsg.NewPtrBrokerRegistrationResponse()
	resp.Version, resp.BrokerEpoch = req.Version, -1
	old, existed := s.Image.Broker(req.BrokerID)
	if err := c.checkRegistration(s, req, old); err != nil {
		resp.ErrorCode = err.Code
		return Result{Response: resp, Err: err}
	}
	b := registration(s.Image.Features(), req)
	var recs []records.Versioned
	amended := existed && old.Incarnation == b.Incarnation
	if amended {
		b.Epoch, b.Fenced, b.InControlledShutdown = old.Epoch, old.Fenced, old.InControlledShutdown
	} else {
		b.Epoch = s.NextOffset
		stored := noEpoch
		if existed {
			stored = old.Epoch
		}
		clean := req.Version < 3 || req.PreviousBrokerEpoch == stored
		recs = c.brokerGone(s.Image, b.ID, clean)
	}
	recs = append(recs, b.Record(s.Image.Features()))
	if amended {
		c.register(b.ID, b.Epoch, b.Fenced, s.NowMs)
	} else {
		c.renew(b.ID, b.Epoch, s.NowMs)
	}
	resp.BrokerEpoch = b.Epoch
	return Result{Records: recs, Response: resp, Atomic: true}
}

func (c *Core) checkRegistration(s Step, req *kmsg.BrokerRegistrationRequest, old *image.Broker) *Error {
	if req.ClusterID != c.o.ClusterID {
		return refuse(kerr.InconsistentClusterID, "Expected cluster ID %s, but got cluster ID %s", c.o.ClusterID, req.ClusterID)
	}
	if old != nil && old.Incarnation != req.IncarnationID && c.validSession(old.ID, old.Epoch, s.NowMs) {
		return refuse(kerr.DuplicateBrokerRegistration, "Another broker is registered with that broker id (incarnation %s, yours is %s). If the broker was recently restarted this should self-resolve once the heartbeat manager expires the broker's session.",
			old.Incarnation, uuid.UUID(req.IncarnationID))
	}
	if req.IsMigratingZkBroker {
		return refuse(kerr.BrokerIDNotRegistered, "Controller does not support registering ZK brokers.")
	}
	if err := checkDirectories(s.Image, req); err != nil {
		return err
	}
	return checkFeatures(s.Image.Features(), req)
}

func checkDirectories(img *image.Image, req *kmsg.BrokerRegistrationRequest) *Error {
	if !img.Features().Directories() {
		return nil
	}
	if len(req.LogDirs) == 0 {
		return refuse(kerr.InvalidRegistration, "No directories specified in request")
	}
	seen := map[uuid.UUID]bool{}
	for _, d := range req.LogDirs {
		if uuid.UUID(d).Reserved() {
			return refuse(kerr.InvalidRegistration, "Reserved directory ID in request")
		}
		if seen[d] {
			return refuse(kerr.InvalidRegistration, "Duplicate directory ID in request")
		}
		seen[d] = true
	}
	for b := range img.Brokers() {
		for _, d := range b.Dirs {
			if b.ID != req.BrokerID && seen[d] {
				return refuse(kerr.InvalidRegistration, "Broker %d is already registered with directory %s", b.ID, d)
			}
		}
	}
	return nil
}

// checkFeatures sees to it that the broker supports each finalized level. A feature it does not name it supports at level 0 only.
func checkFeatures(f image.Features, req *kmsg.BrokerRegistrationRequest) *Error {
	check := func(name string, lo, hi int16) *Error {
		if level := f.Level(name); level < lo || level > hi {
			return refuse(kerr.UnsupportedVersion, "Unable to register because the broker does not support finalized version %d of %s. The broker wants a version between %d and %d, inclusive.",
				level, name, lo, hi)
		}
		return nil
	}
	named := map[string]bool{}
	for _, r := range req.Features {
		named[r.Name] = true
		if r.Name == image.FeatureKRaft {
			continue // its level is in the log's control records, and package metalog checks it
		}
		if err := check(r.Name, r.MinSupportedVersion, r.MaxSupportedVersion); err != nil {
			return err
		}
	}
	if !named[image.FeatureMetadata] {
		return refuse(kerr.InvalidRegistration, "Request features do not contain 'metadata.version'")
	}
	for name := range f.All() {
		if !named[name] {
			if err := check(name, 0, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

func registration(f image.Features, req *kmsg.BrokerRegistrationRequest) *image.Broker {
	b := &image.Broker{ID: req.BrokerID, Incarnation: req.IncarnationID, Rack: req.Rack, Fenced: true}
	for _, l := range req.Listeners {
		b.Endpoints = append(b.Endpoints, image.Endpoint{Name: l.Name, Host: l.Host, Port: l.Port, Protocol: l.SecurityProtocol})
	}
	for _, r := range req.Features {
		b.Features = append(b.Features, image.FeatureRange{Name: r.Name, Min: r.MinSupportedVersion, Max: r.MaxSupportedVersion})
	}
	if f.Directories() {
		for _, d := range req.LogDirs {
			b.Dirs = append(b.Dirs, d)
		}
	}
	return b
}

// brokerGone takes a broker out of each ISR before a new incarnation registers; after an unclean shutdown out of each ELR too.
func (c *Core) brokerGone(img *image.Image, broker int32, clean bool) []records.Versioned {
	if !img.Features().ELR() || clean {
		return c.leaderUpdates(img, brokerChange{remove: broker, add: nobody, unclean: nobody}, inISR(img, broker))
	}
	u := brokerChange{remove: nobody, add: nobody, unclean: broker}
	recs := c.leaderUpdates(img, u, inISR(img, broker))
	return append(recs, c.leaderUpdates(img, u, inELR(img, broker))...)
}

// UnregisterBroker removes a broker from the cluster (kafka-cluster unregister).
func (c *Core) UnregisterBroker(s Step, req *kmsg.UnregisterBrokerRequest) Result {
	resp := kmsg.NewPtrUnregisterBrokerResponse()
	resp.Version = req.Version
	b, ok := s.Image.Broker(req.BrokerID)
	if !ok {
		err := refuse(kerr.BrokerIDNotRegistered, "Broker ID %d is not currently registered", req.BrokerID)
		resp.ErrorCode, resp.ErrorMessage = err.Code, err.text()
		return Result{Response: resp, Err: err}
	}
	gone := brokerChange{remove: b.ID, add: nobody, unclean: nobody}
	recs := c.leaderUpdates(s.Image, gone, inISR(s.Image, b.ID))
	lost := brokerChange{remove: nobody, add: nobody, unclean: b.ID}
	recs = append(recs, c.leaderUpdates(s.Image, lost, inELR(s.Image, b.ID))...)
	r := records.NewUnregisterBrokerRecord()
	r.BrokerID, r.BrokerEpoch = b.ID, b.Epoch
	recs = append(recs, records.Versioned{Record: &r})
	delete(c.soft.brokers, b.ID)
	return Result{Records: recs, Response: resp, Atomic: true}
}

// RegisterController handles ControllerRegistration (KIP-919).
func (c *Core) RegisterController(s Step, req *kmsg.ControllerRegistrationRequest) Result {
	resp := kmsg.NewPtrControllerRegistrationResponse()
	resp.Version = req.Version
	if !s.Image.Features().ControllerRegistrations() {
		err := refuse(kerr.UnsupportedVersion, "The current MetadataVersion is too old to support controller registrations.")
		resp.ErrorCode, resp.ErrorMessage = err.Code, err.text()
		return Result{Response: resp, Err: err}
	}
	reg := &image.Controller{ID: req.ControllerID, Incarnation: req.IncarnationID}
	for _, l := range req.Listeners {
		reg.Endpoints = append(reg.Endpoints, image.Endpoint{Name: l.Name, Host: l.Host, Port: l.Port, Protocol: l.SecurityProtocol})
	}
	for _, r := range req.Features {
		reg.Features = append(reg.Features, image.FeatureRange{Name: r.Name, Min: r.MinSupportedVersion, Max: r.MaxSupportedVersion})
	}
	return Result{Records: []records.Versioned{reg.Record()}, Response: resp, Atomic: true}
}

// checkEpoch sees to it that a broker speaks with its registered epoch.
func checkEpoch(img *image.Image, broker int32, epoch int64) *Error {
	b, ok := img.Broker(broker)
	if !ok {
		return refuse(kerr.StaleBrokerEpoch, "No broker registration found for broker id %d", broker)
	}
	if b.Epoch != epoch {
		return refuse(kerr.StaleBrokerEpoch, "Expected broker epoch %d, but got broker epoch %d", b.Epoch, epoch)
	}
	return nil
}

func directoriesMinus(dirs, minus []uuid.UUID) []uuid.UUID {
	var out []uuid.UUID
	for _, d := range dirs {
		if !slices.Contains(minus, d) {
			out = append(out, d)
		}
	}
	return out
}
