package controller

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/records"
)

// Upgrade types of UpdateFeatures v1+.
const (
	featureUpgrade         int8 = 1
	featureSafeDowngrade   int8 = 2
	featureUnsafeDowngrade int8 = 3
)

// UpdateFeatures raises or lowers finalized feature levels (KIP-584, KIP-1022), all or none. kraft.version is not metadata: the caller
// has the consensus core change it before it appends these records.
func (c *Core) UpdateFeatures(s Step, req *kmsg.UpdateFeaturesRequest) Result {
	resp := kmsg.NewPtrUpdateFeaturesResponse()
	resp.Version = req.Version
	recs, err := c.featureRecords(s, req)
	if err != nil {
		err.Message = "The update failed for all features since the following feature had an error: " + err.Message
		resp.ErrorCode, resp.ErrorMessage = err.Code, err.text()
		recs = nil
	}
	if req.Version <= 1 && err == nil {
		for _, u := range req.FeatureUpdates {
			r := kmsg.NewUpdateFeaturesResponseResult()
			r.Feature, r.ErrorMessage = u.Feature, ptr("NONE") // Kafka's text of success
			resp.Results = append(resp.Results, r)
		}
	}
	if req.ValidateOnly {
		recs = nil
	}
	return Result{Records: recs, Response: resp, Atomic: true, Err: err}
}

func (c *Core) featureRecords(s Step, req *kmsg.UpdateFeaturesRequest) ([]records.Versioned, *Error) {
	img := s.Image
	wanted := map[string]int16{image.FeatureMetadata: img.Features().Metadata}
	for name, level := range img.Features().All() {
		wanted[name] = level
	}
	for _, u := range req.FeatureUpdates {
		wanted[u.Feature] = u.MaxVersionLevel
	}
	var recs []records.Versioned
	elr := false
	for _, u := range req.FeatureUpdates {
		how := u.UpgradeType
		if req.Version == 0 {
			how = featureUpgrade
			if u.AllowDowngrade {
				how = featureSafeDowngrade
			}
		}
		v, err := c.featureRecord(s, u.Feature, u.MaxVersionLevel, how, wanted)
		if err != nil {
			return nil, err
		}
		recs = append(recs, v)
		elr = elr || u.Feature == image.FeatureELR && u.MaxVersionLevel > 0
	}
	if elr {
		recs = append(c.elrSafety(img), recs...)
	}
	return recs, nil
}

func (c *Core) featureRecord(s Step, name string, level int16, how int8, wanted map[string]int16) (records.Versioned, *Error) {
	invalid := func(format string, args ...any) (records.Versioned, *Error) {
		return records.Versioned{}, refuse(kerr.InvalidUpdateVersion, "Invalid update version %d for feature %s. %s", level, name, fmt.Sprintf(format, args...))
	}
	img := s.Image
	current := img.Features().Level(name)
	if name == image.FeatureKRaft {
		current = s.Quorum.KRaftVersion
	}
	if how < featureUpgrade || how > featureUnsafeDowngrade {
		return invalid("The controller does not support the given upgrade type.")
	}
	if level < 0 {
		return invalid("A feature version cannot be less than 0.")
	}
	if reason := c.notSupported(s, name, level); reason != "" {
		return invalid("%s", reason)
	}
	if level < current && how == featureUpgrade {
		return invalid("Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.")
	}
	if level > current && how != featureUpgrade {
		return invalid("Can't downgrade to a newer version.")
	}
	if _, known := image.SupportedRange(c.o.Supported, name); !known {
		return invalid("Feature %s not found.", name)
	}
	if name == image.FeatureKRaft {
		if level < current {
			return invalid("Can't downgrade the version of this feature.")
		}
		// Its level is in the log's control records and the caller has changed it; the NoOp makes the answer wait for the commit.
		return records.Versioned{Record: ptr(records.NewNoOpRecord())}, nil
	}
	if name == image.FeatureMetadata {
		if err := checkMetadataVersion(current, level, how); err != nil {
			return records.Versioned{}, err
		}
	} else if name == image.FeatureELR && level > 0 && wanted[image.FeatureMetadata] < image.MetadataELR {
		return invalid("%s could not be set to %d because it depends on %s level %d", name, level, image.FeatureMetadata, image.MetadataELR)
	}
	r := records.NewFeatureLevelRecord()
	r.Name, r.FeatureLevel = name, level
	return records.Versioned{Record: &r}, nil
}

// changesMetadata lists the levels of metadata.version that brought new records or fields: a downgrade across one could lose them.
func changesMetadata(level int16) bool {
	return slices.Contains([]int16{7, 8, 11, 13, 14, 15, 17, 23, 30}, level)
}

func checkMetadataVersion(current, level int16, how int8) *Error {
	if level < image.MetadataMinimum || level > image.MetadataUnstable {
		return refuse(kerr.InvalidUpdateVersion, "Invalid metadata.version %d. Valid versions are from %d to %d.", level, image.MetadataMinimum, image.MetadataUnstable)
	}
	for l := level + 1; l <= current; l++ {
		if !changesMetadata(l) {
			continue
		}
		reason := "Refusing to perform the requested downgrade because it might delete metadata information."
		if how == featureUnsafeDowngrade {
			reason = "Unsafe metadata downgrade is not supported in this version."
		}
		return refuse(kerr.InvalidUpdateVersion, "Unsupported metadata.version downgrade from %d to %d. %s", current, level, reason)
	}
	return nil
}

// notSupported says which node of the cluster does not support a level, "" when all do.
func (c *Core) notSupported(s Step, name string, level int16) string {
	img := s.Image
	reason := func(who string, ranges []image.FeatureRange) string {
		r, ok := image.SupportedRange(ranges, name)
		switch {
		case level == 0 && name != image.FeatureMetadata:
			return ""
		case !ok || r.Max == 0:
			return who + " does not support this feature."
		case level < r.Min || level > r.Max:
			return fmt.Sprintf("%s only supports versions %d-%d", who, r.Min, r.Max)
		}
		return ""
	}
	if no := reason(fmt.Sprintf("Local controller %d", c.o.NodeID), c.o.Supported); no != "" {
		return no
	}
	for b := range img.Brokers() {
		if no := reason(fmt.Sprintf("Broker %d", b.ID), b.Features); no != "" {
			return no
		}
	}
	if !img.Features().ControllerRegistrations() {
		return ""
	}
	registered := map[int32]bool{c.o.NodeID: true}
	for ctl := range img.Controllers() {
		registered[ctl.ID] = true
		if ctl.ID == c.o.NodeID {
			continue
		}
		if no := reason(fmt.Sprintf("Controller %d", ctl.ID), ctl.Features); no != "" {
			return no
		}
	}
	for _, id := range s.Quorum.Voters {
		if !registered[id] {
			return fmt.Sprintf("controller %d has not registered, and may not support this feature", id)
		}
	}
	return ""
}
