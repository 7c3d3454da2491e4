// Package broker puts a node together: it builds every part in order, starts
// them, and stops them in reverse. It decides nothing about requests or data.
//
//	storage/dirs     locks the log directories and recovers the logs
//	metalog, quorum  the metadata log, the controller, the cluster image
//	replication      the replicas, as the image says
//	api, network     controller listeners, then the clients'
//	lifecycle        registration and heartbeats
//
// The listeners for clients accept connections only when the broker is unfenced
// and its image has caught up: no client is told that a topic does not exist
// because this node has not heard of it yet (pain P23).
package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/api"
	"weir/internal/batch"
	"weir/internal/clock"
	"weir/internal/config"
	"weir/internal/controller"
	"weir/internal/image"
	"weir/internal/kraft"
	"weir/internal/lifecycle"
	"weir/internal/metalog"
	"weir/internal/network"
	"weir/internal/partition"
	"weir/internal/quorum"
	"weir/internal/replication"
	"weir/internal/rng"
	"weir/internal/storage/dirs"
	"weir/internal/uuid"
	"weir/internal/vfs"
)

// Options is what a Broker is made of.
type Options struct {
	Static *config.Static
	Node   *config.Node
	FS     vfs.FS
	Clock  clock.Clock
	Logger *slog.Logger
}

// Broker is one running node.
type Broker struct {
	o      Options
	clock  clock.Clock
	logger *slog.Logger

	dirs      *dirs.Dirs
	metalog   *metalog.Log
	quorum    *quorum.Node
	replicas  *replication.Manager
	lifecycle *lifecycle.Lifecycle
	clients   *network.Server
	control   *network.Server
	http      stopper

	cancel context.CancelFunc
	parts  *errgroup.Group
}

// stopper is a part that can be told to stop.
type stopper interface{ Shutdown(ctx context.Context) error }

func (b *Broker) eff() *config.Effective { return b.replicas.Effective() }
