package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestGroups looks at the names, and that only few groups are named.
func TestGroups(t *testing.T) {
	g := Groups{Partitions: 48, Loading: 2, Offsets: 7, Empty: 1, PreparingRebalance: 2, CompletingRebalance: 3, Stable: 4, Commits: 11, Expirations: 12, Deletions: 13, Rebalances: 14}
	for i := range 30 {
		g.Waiting = append(g.Waiting, WaitingRebalance{Group: fmt.Sprintf("g%02d", i), Members: 2, For: time.Duration(40-i) * time.Second})
	}
	g.Waiting = append(g.Waiting, WaitingRebalance{Group: "young", Members: 1, For: time.Second})
	r := New()
	r.RegisterGroups(func() Groups { return g })
	_, text := get(t, serve(t, r, func() error { return nil }), "/metrics")
	for _, line := range []string{
		"kafka_coordinator_group_groupmetadatamanager_numoffsets 7",
		"kafka_coordinator_group_groupmetadatamanager_numgroups 10",
		"kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance 2",
		"kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance 3",
		"kafka_coordinator_group_groupmetadatamanager_numgroupsstable 4",
		"kafka_coordinator_group_groupmetadatamanager_numgroupsempty 1",
		"kafka_coordinator_group_groupmetadatamanager_numgroupsdead 0",
		`kafka_server_group_coordinator_metrics_num_partitions{state="active"} 48`,
		`kafka_server_group_coordinator_metrics_num_partitions{state="loading"} 2`,
		`kafka_server_group_coordinator_metrics_group_count{protocol="classic"} 10`,
		"kafka_server_group_coordinator_metrics_offset_commit_count 11",
		"kafka_server_group_coordinator_metrics_offset_expiration_count 12",
		"kafka_server_group_coordinator_metrics_offset_deletion_count 13",
		"kafka_server_group_coordinator_metrics_group_completed_rebalance_count 14",
		"weir_group_rebalances_waiting 31",
		"weir_group_rebalance_oldest_seconds 40",
		`weir_group_rebalance_waiting_members{group=""} 61`,
		`weir_group_rebalance_waiting_members{group="g00"} 2`,
		`weir_group_rebalance_waiting_seconds{group="g19"} 21`,
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("%s is missing", line)
		}
	}
	if n := strings.Count(text, "\nweir_group_rebalance_waiting_seconds{"); n != namedGroups {
		t.Errorf("%d groups are named, want %d", n, namedGroups)
	}
}
