package api

import (
	"context"
	"regexp"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/network"
	"weir/internal/wire"
)

// ApiVersions lists what the listener serves (API key 18), versions 0–4.
//
//	v0–v2  the list; v1 throttle
//	v3     flexible, names the client's software (KIP-511), tells features (KIP-584)
//	v4     supported features may have a lowest level of 0
type ApiVersions struct {
	Images    Images
	Supported []image.FeatureRange
	// KRaft tells the level of kraft.version, which is not part of the image.
	KRaft func() int16
	table *Table
}

// Bind tells which table the answer lists; it is called once, when the table is made.
func (a *ApiVersions) Bind(t *Table) { a.table = t }

// Key is ApiVersions.
func (*ApiVersions) Key() kmsg.Key { return kmsg.ApiVersions }

// softwareName is what Kafka accepts as a client's software name and version
// (ApiVersionsRequest.isValid).
var softwareName = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)

// Handle answers from the table.
func (a *ApiVersions) Handle(_ context.Context, c *Call, r kmsg.Request) wire.Response {
	req := as[*kmsg.ApiVersionsRequest](r)
	res := responseTo[*kmsg.ApiVersionsResponse](r)
	if req.Version >= 3 {
		if !softwareName.MatchString(req.ClientSoftwareName) || !softwareName.MatchString(req.ClientSoftwareVersion) {
			res.ErrorCode = kerr.InvalidRequest.Code
			return reply(res)
		}
		c.Conn.SetSoftware(network.Software{Name: req.ClientSoftwareName, Version: req.ClientSoftwareVersion})
	}
	res.ApiKeys = a.table.versions()
	for _, f := range a.Supported {
		if req.Version < 4 && f.Min == 0 {
			continue // older clients refuse a lowest level of 0 (KIP-1022)
		}
		s := kmsg.NewApiVersionsResponseSupportedFeature()
		s.Name, s.MinVersion, s.MaxVersion = f.Name, f.Min, f.Max
		res.SupportedFeatures = append(res.SupportedFeatures, s)
	}
	a.finalized(res)
	return reply(res)
}

// finalized adds every feature whose level is above 0.
func (a *ApiVersions) finalized(res *kmsg.ApiVersionsResponse) {
	img := a.Images.Image()
	res.FinalizedFeaturesEpoch = img.Provenance.Offset
	add := func(name string, level int16) {
		if level > 0 {
			f := kmsg.NewApiVersionsResponseFinalizedFeature()
			f.Name, f.MinVersionLevel, f.MaxVersionLevel = name, level, level
			res.FinalizedFeatures = append(res.FinalizedFeatures, f)
		}
	}
	add(image.FeatureMetadata, img.Features().Metadata)
	add(image.FeatureKRaft, a.KRaft())
	for name, level := range img.Features().All() {
		add(name, level)
	}
}

func (t *Table) versions() []kmsg.ApiVersionsResponseApiKey {
	var out []kmsg.ApiVersionsResponseApiKey
	for _, key := range t.Keys() {
		if r, ok := wire.Supported(key); ok {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MinVersion, k.MaxVersion = key, r.Min, r.Max
			out = append(out, k)
		}
	}
	return out
}

// apiVersionsUnsupported answers an ApiVersions of an unknown version in the v0
// shape, with the range of ApiVersions itself, so that the client can ask again.
func apiVersionsUnsupported(t *Table) wire.Response {
	res := kmsg.NewPtrApiVersionsResponse()
	res.Version = 0
	res.ErrorCode = kerr.UnsupportedVersion.Code
	for _, k := range t.versions() {
		if k.ApiKey == int16(kmsg.ApiVersions) {
			res.ApiKeys = append(res.ApiKeys, k)
		}
	}
	return reply(res)
}
