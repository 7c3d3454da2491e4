package image

import (
	"slices"

	"weir/internal/records"
	"weir/internal/uuid"
)

// Endpoint is one address at which a broker or controller listens.
type Endpoint struct {
	Name     string // listener name, such as PLAINTEXT
	Host     string
	Port     uint16
	Protocol int16 // Kafka's SecurityProtocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL
}

// FeatureRange is the range of levels of one feature that a node says it supports.
type FeatureRange struct {
	Name     string
	Min, Max int16
}

// Broker is one registered broker, as its RegisterBrokerRecord and later changes say (Kafka's BrokerRegistration).
type Broker struct {
	ID                   int32
	Epoch                int64 // the log's end offset when the registration was handled; newer is higher
	Incarnation          uuid.UUID
	MigratingZk          bool
	Endpoints            []Endpoint
	Features             []FeatureRange
	Rack                 *string
	Fenced               bool
	InControlledShutdown bool
	Dirs                 []uuid.UUID // log directories that are online
	CordonedDirs         []uuid.UUID // of these, the ones that take no new replica; nil: never said
}

// Active reports whether the broker may lead and be placed on.
func (b *Broker) Active() bool { return !b.Fenced && !b.InControlledShutdown }

// HasOnlineDir is Kafka's BrokerRegistration.hasOnlineDir: a broker that never named its directories owns each of them.
func (b *Broker) HasOnlineDir(dir uuid.UUID) bool {
	switch {
	case dir == uuid.DirUnassigned || dir == uuid.DirMigrating:
		return true
	case dir == uuid.DirLost:
		return false
	}
	return len(b.Dirs) == 0 || slices.Contains(b.Dirs, dir)
}

// AllDirsCordoned reports whether no directory of the broker takes a new replica.
func (b *Broker) AllDirsCordoned() bool {
	if len(b.Dirs) == 0 || len(b.CordonedDirs) == 0 {
		return false
	}
	for _, d := range b.Dirs {
		if !slices.Contains(b.CordonedDirs, d) {
			return false
		}
	}
	return true
}

// Endpoint returns the address of the named listener.
func (b *Broker) Endpoint(listener string) (Endpoint, bool) { return endpoint(b.Endpoints, listener) }

// Controller is one registered controller.
type Controller struct {
	ID               int32
	Incarnation      uuid.UUID
	ZkMigrationReady bool
	Endpoints        []Endpoint
	Features         []FeatureRange
}

// Endpoint returns the address of the named listener.
func (c *Controller) Endpoint(listener string) (Endpoint, bool) {
	return endpoint(c.Endpoints, listener)
}

func endpoint(list []Endpoint, listener string) (Endpoint, bool) {
	for _, e := range list {
		if e.Name == listener {
			return e, true
		}
	}
	return Endpoint{}, false
}

// SupportedRange returns what a node said about a feature. Absent features support level 0 only, as in Kafka.
func SupportedRange(ranges []FeatureRange, name string) (FeatureRange, bool) {
	for _, r := range ranges {
		if r.Name == name {
			return r, true
		}
	}
	return FeatureRange{Name: name}, false
}

func brokerFromRecord(r *records.RegisterBrokerRecord) *Broker {
	b := &Broker{
		ID: r.BrokerID, Epoch: r.BrokerEpoch, Incarnation: r.IncarnationID, MigratingZk: r.IsMigratingZkBroker,
		Rack: r.Rack, Fenced: r.Fenced, InControlledShutdown: r.InControlledShutdown,
		Dirs: sortedDirs(r.LogDirs), CordonedDirs: sortedDirs(r.CordonedLogDirs),
	}
	for _, e := range r.EndPoints {
		b.Endpoints = append(b.Endpoints, Endpoint{e.Name, e.Host, e.Port, e.SecurityProtocol})
	}
	for _, f := range r.Features {
		b.Features = append(b.Features, FeatureRange{f.Name, f.MinSupportedVersion, f.MaxSupportedVersion})
	}
	return b
}

// Record returns the registration as a snapshot or a new registration writes it at the given feature levels.
func (b *Broker) Record(f Features) records.Versioned {
	r := records.NewRegisterBrokerRecord()
	r.BrokerID, r.BrokerEpoch, r.IncarnationID, r.IsMigratingZkBroker = b.ID, b.Epoch, b.Incarnation, b.MigratingZk
	r.Rack, r.Fenced, r.InControlledShutdown = b.Rack, b.Fenced, b.InControlledShutdown
	for _, e := range b.Endpoints {
		r.EndPoints = append(r.EndPoints, records.RegisterBrokerRecordEndPoint{Name: e.Name, Host: e.Host, Port: e.Port, SecurityProtocol: e.Protocol})
	}
	for _, s := range b.Features {
		r.Features = append(r.Features, records.RegisterBrokerRecordFeature{Name: s.Name, MinSupportedVersion: s.Min, MaxSupportedVersion: s.Max})
	}
	if f.Directories() {
		r.LogDirs = b.Dirs
	}
	if f.CordonedDirs() {
		r.CordonedLogDirs = b.CordonedDirs
	}
	return records.Versioned{Record: &r, Version: f.RegisterBrokerVersion()}
}

func controllerFromRecord(r *records.RegisterControllerRecord) *Controller {
	c := &Controller{ID: r.ControllerID, Incarnation: r.IncarnationID, ZkMigrationReady: r.ZkMigrationReady}
	for _, e := range r.EndPoints {
		c.Endpoints = append(c.Endpoints, Endpoint{e.Name, e.Host, e.Port, e.SecurityProtocol})
	}
	for _, f := range r.Features {
		c.Features = append(c.Features, FeatureRange{f.Name, f.MinSupportedVersion, f.MaxSupportedVersion})
	}
	return c
}

// Record returns the registration as it stands in the log.
func (c *Controller) Record() records.Versioned {
	r := records.NewRegisterControllerRecord()
	r.ControllerID, r.IncarnationID, r.ZkMigrationReady = c.ID, c.Incarnation, c.ZkMigrationReady
	for _, e := range c.Endpoints {
		r.EndPoints = append(r.EndPoints, records.RegisterControllerRecordEndPoint{Name: e.Name, Host: e.Host, Port: e.Port, SecurityProtocol: e.Protocol})
	}
	for _, s := range c.Features {
		r.Features = append(r.Features, records.RegisterControllerRecordFeature{Name: s.Name, MinSupportedVersion: s.Min, MaxSupportedVersion: s.Max})
	}
	return records.Versioned{Record: &r}
}

// sortedDirs copies and sorts, because Kafka keeps directories sorted and looks them up by binary search; nil stays nil.
func sortedDirs(dirs []uuid.UUID) []uuid.UUID {
	if dirs == nil {
		return nil
	}
	out := slices.Clone(dirs)
	slices.SortFunc(out, uuid.UUID.Compare)
	return out
}
