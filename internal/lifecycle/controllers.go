package lifecycle

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/clock"
	"weir/internal/image"
	"weir/internal/uuid"
)

// ControllerOptions is what a controller tells of itself (KIP-919).
type ControllerOptions struct {
	NodeID      int32
	Incarnation uuid.UUID // new at each start of the process
	Endpoints   []image.Endpoint
	Features    []image.FeatureRange
	Controller  Controller
	Images      Images
	Clock       clock.Clock
	Logger      *slog.Logger
}

// RegisterController keeps this controller's registration in the cluster image
// right until ctx ends: it is written at start, and again when the cluster loses
// it or first reaches a metadata.version that has registrations
// (ControllerRegistrationManager). It returns an error only when refused for good.
func RegisterController(ctx context.Context, o ControllerOptions) error {
	for {
		img := o.Images.WaitFor(ctx, func(i *image.Image) bool { return o.due(i) })
		if ctx.Err() != nil {
			return nil
		}
		again, err := o.register(ctx)
		if err != nil {
			return err
		}
		if again {
			clock.Sleep(ctx, o.Clock, retryAfter)
			continue
		}
		// Wait until the registration shows, so that it is not sent twice.
		offset := img.Provenance.Offset
		o.Images.WaitFor(ctx, func(i *image.Image) bool { return i.Provenance.Offset > offset && !o.due(i) })
	}
}

func (o *ControllerOptions) due(i *image.Image) bool {
	c, ok := i.Controller(o.NodeID)
	return i.Features().ControllerRegistrations() && (!ok || c.Incarnation != o.Incarnation)
}

func (o *ControllerOptions) register(ctx context.Context) (again bool, err error) {
	req := kmsg.NewPtrControllerRegistrationRequest()
	req.ControllerID, req.IncarnationID = o.NodeID, o.Incarnation
	for _, e := range o.Endpoints {
		l := kmsg.NewControllerRegistrationRequestListener()
		l.Name, l.Host, l.Port, l.SecurityProtocol = e.Name, e.Host, e.Port, e.Protocol
		req.Listeners = append(req.Listeners, l)
	}
	for _, f := range o.Features {
		n := kmsg.NewControllerRegistrationRequestFeature()
		n.Name, n.MinSupportedVersion, n.MaxSupportedVersion = f.Name, f.Min, f.Max
		req.Features = append(req.Features, n)
	}
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	r, err := o.Controller.Do(ctx, req)
	if err != nil {
		return true, nil // no controller: try again
	}
	res := r.(*kmsg.ControllerRegistrationResponse)
	switch err := kerr.ErrorForCode(res.ErrorCode); {
	case err == nil:
		o.Logger.Info("controller registered", "node", o.NodeID)
		return false, nil
	case kerr.IsRetriable(err), res.ErrorCode == kerr.UnsupportedVersion.Code:
		return true, nil
	default:
		return false, fmt.Errorf("registration of controller %d refused: %w", o.NodeID, err)
	}
}

const registerTimeout = 5 * time.Second
