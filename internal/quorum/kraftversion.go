package quorum

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
)

// refuseKRaftVersion answers an UpdateFeatures that would change kraft.version:
// its level is part of the consensus protocol, not of the metadata, and the
// change from static to dynamic voters is not served yet. nil: nothing to refuse.
func (n *Node) refuseKRaftVersion(req *kmsg.UpdateFeaturesRequest) kmsg.Response {
	_, current := n.o.Log.Voters()
	for _, u := range req.FeatureUpdates {
		if u.Feature != image.FeatureKRaft || u.MaxVersionLevel == current {
			continue
		}
		res := req.ResponseKind().(*kmsg.UpdateFeaturesResponse)
		text := fmt.Sprintf("The update failed for all features since the following feature had an error: Invalid update version %d for feature %s. "+
			"The level is %d, and this server cannot change it yet: format new clusters with the voters they need.", u.MaxVersionLevel, u.Feature, current)
		res.ErrorCode, res.ErrorMessage = kerr.InvalidUpdateVersion.Code, &text
		if req.Version <= 1 {
			for _, u := range req.FeatureUpdates {
				row := kmsg.NewUpdateFeaturesResponseResult()
				row.Feature, row.ErrorCode, row.ErrorMessage = u.Feature, res.ErrorCode, &text
				res.Results = append(res.Results, row)
			}
		}
		return res
	}
	return nil
}
