package quorum

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/image"
	"weir/internal/kraft"
)

// upgradeKRaft carries out what an UpdateFeatures says of kraft.version: that level is
// part of the consensus, not of the metadata. The controller has judged the whole
// request before; nil: it may now write the rest.
func (n *Node) upgradeKRaft(ctx context.Context, req *kmsg.UpdateFeaturesRequest) (refusal kmsg.Response, err error) {
	_, current := n.o.Log.Voters()
	for _, u := range req.FeatureUpdates {
		if u.Feature != image.FeatureKRaft || u.MaxVersionLevel == current {
			continue
		}
		check := *req
		check.ValidateOnly = true
		r, err := n.machine.Do(ctx, kmsg.NameForKey(req.Key()), n.write(n.updateFeatures(&check)))
		if err != nil {
			return nil, err
		}
		if res := r.(*kmsg.UpdateFeaturesResponse); res.ErrorCode != 0 {
			return res, nil
		}
		body, _ := n.Answer(ctx, kraft.None, kraft.UpgradeRequest{Version: u.MaxVersionLevel, ValidateOnly: req.ValidateOnly})
		if body == nil {
			return nil, fmt.Errorf("kraft.version: %w", context.Cause(ctx))
		}
		switch a := body.(kraft.ChangeResponse); a.Code {
		case kraft.OK:
		case kraft.NotLeader:
			return nil, &NotControllerError{Leader: n.Leader().ID}
		default:
			return refuseFeatures(req, int16(a.Code), a.Text), nil
		}
	}
	return nil, nil
}

// refuseFeatures answers an UpdateFeatures of which one feature was refused.
func refuseFeatures(req *kmsg.UpdateFeaturesRequest, code int16, text string) kmsg.Response {
	res := req.ResponseKind().(*kmsg.UpdateFeaturesResponse)
	if text == "" {
		text = kerr.TypedErrorForCode(code).Description
	}
	text = "The update failed for all features since the following feature had an error: " + text
	res.ErrorCode, res.ErrorMessage = code, &text
	return res
}
