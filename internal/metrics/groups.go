package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Groups is what a group coordinator knows (Kafka's GroupMetadataManager and group-coordinator-metrics).
type Groups struct {
	// Partitions are those of __consumer_offsets that this broker leads and has loaded, Loading those it still loads.
	Partitions, Loading int
	Offsets             int
	// Groups in each state of a classic group.
	Empty, PreparingRebalance, CompletingRebalance, Stable int
	// Consumer groups (KIP-848) in each state.
	ConsumerEmpty, ConsumerAssigning, ConsumerReconciling, ConsumerStable int
	// Counters: offsets committed, expired, deleted; rebalances of classic groups completed, of consumer groups begun.
	Commits, Expirations, Deletions, Rebalances, Bumps int64
	// Waiting are the rebalances that wait for members, the oldest first.
	Waiting []WaitingRebalance
}

// WaitingRebalance is a rebalance that waits for members.
type WaitingRebalance struct {
	Group   string
	Members int
	For     time.Duration
}

// Groups that wait get series of their own only when they have waited for longest, and long: groups come and go, and
// each would leave a series behind.
const (
	namedGroups = 20
	namedAfter  = 5 * time.Second
)

const (
	groupManager = "kafka_coordinator_group_groupmetadatamanager_"
	groupServer  = "kafka_server_group_coordinator_metrics_"
	rebalances   = "weir_group_rebalance"
)

// groupTable is the names that RegisterGroups fills. It is filled here and never changed.
var groupTable = [...]desc{
	{groupManager + "numoffsets", "Committed offsets.", noLabels},
	{groupManager + "numgroups", "Classic groups.", noLabels},
	{groupManager + "numgroupspreparingrebalance", "Groups whose members have to join.", noLabels},
	{groupManager + "numgroupscompletingrebalance", "Groups whose leader has to assign.", noLabels},
	{groupManager + "numgroupsstable", "Groups whose members have their assignments.", noLabels},
	{groupManager + "numgroupsempty", "Groups without members.", noLabels},
	{groupManager + "numgroupsdead", "Groups that are gone; always 0.", noLabels},
	{groupServer + "num_partitions", "Partitions of __consumer_offsets that this broker leads.", []string{"state"}},
	{groupServer + "group_count", "Groups by protocol.", []string{"protocol"}},
	{groupServer + "consumer_group_count", "Consumer groups (KIP-848) by state.", []string{"state"}},
	{groupServer + "consumer_group_rebalance_count", "Rebalances of consumer groups (KIP-848) begun.", noLabels},
	{groupServer + "offset_commit_count", "Offsets committed.", noLabels},
	{groupServer + "offset_expiration_count", "Offsets expired.", noLabels},
	{groupServer + "offset_deletion_count", "Offsets deleted.", noLabels},
	{groupServer + "group_completed_rebalance_count", "Rebalances of classic groups completed.", noLabels},
	{rebalances + "s_waiting", "Rebalances that wait for members.", noLabels},
	{rebalances + "_oldest_seconds", "How long the longest of the rebalances that wait for members has waited.", noLabels},
	{rebalances + "_waiting_members", "Members that rebalances wait for; group is empty for the sum, else one of the 20 groups that have waited longest, for 5 s at least.", []string{"group"}},
	{rebalances + "_waiting_seconds", "How long a rebalance has waited for members, of the same groups.", []string{"group"}},
}

// RegisterGroups shows a group coordinator. It is called once; f, at every scrape, must not block.
func (r *Registry) RegisterGroups(f func() Groups) {
	r.show(groupTable[:], func(e emitter) { collectGroups(e, f()) })
}

func collectGroups(e emitter, g Groups) {
	groups := int64(g.Empty + g.PreparingRebalance + g.CompletingRebalance + g.Stable)
	e.gauge(groupManager+"numoffsets", int64(g.Offsets))
	e.gauge(groupManager+"numgroups", groups)
	e.gauge(groupManager+"numgroupspreparingrebalance", int64(g.PreparingRebalance))
	e.gauge(groupManager+"numgroupscompletingrebalance", int64(g.CompletingRebalance))
	e.gauge(groupManager+"numgroupsstable", int64(g.Stable))
	e.gauge(groupManager+"numgroupsempty", int64(g.Empty))
	e.gauge(groupManager+"numgroupsdead", 0)
	e.gauge(groupServer+"num_partitions", int64(g.Partitions), "active")
	e.gauge(groupServer+"num_partitions", int64(g.Loading), "loading")
	e.gauge(groupServer+"group_count", groups, "classic")
	e.gauge(groupServer+"group_count", int64(g.ConsumerEmpty+g.ConsumerAssigning+g.ConsumerReconciling+g.ConsumerStable), "consumer")
	e.gauge(groupServer+"consumer_group_count", int64(g.ConsumerEmpty), "empty")
	e.gauge(groupServer+"consumer_group_count", int64(g.ConsumerAssigning), "assigning")
	e.gauge(groupServer+"consumer_group_count", int64(g.ConsumerReconciling), "reconciling")
	e.gauge(groupServer+"consumer_group_count", int64(g.ConsumerStable), "stable")
	e.counter(groupServer+"consumer_group_rebalance_count", g.Bumps)
	e.counter(groupServer+"offset_commit_count", g.Commits)
	e.counter(groupServer+"offset_expiration_count", g.Expirations)
	e.counter(groupServer+"offset_deletion_count", g.Deletions)
	e.counter(groupServer+"group_completed_rebalance_count", g.Rebalances)
	e.waiting(g.Waiting)
}

func (e emitter) waiting(all []WaitingRebalance) {
	seconds := func(name string, d time.Duration, labels ...string) {
		e.ch <- prometheus.MustNewConstMetric(e.descs[name], prometheus.GaugeValue, d.Seconds(), labels...)
	}
	var members int
	var oldest time.Duration
	for i, w := range all {
		members, oldest = members+w.Members, max(oldest, w.For)
		if i < namedGroups && w.For >= namedAfter {
			e.gauge(rebalances+"_waiting_members", int64(w.Members), w.Group)
			seconds(rebalances+"_waiting_seconds", w.For, w.Group)
		}
	}
	e.gauge(rebalances+"s_waiting", int64(len(all)))
	e.gauge(rebalances+"_waiting_members", int64(members), "")
	seconds(rebalances+"_oldest_seconds", oldest)
}
