package image

import (
	"fmt"
	"slices"
)

// LeaderChange is a partition whose leader is another one than before a delta.
type LeaderChange struct {
	Topic     string
	Partition int32
	To        int32  // -1: nobody
	Because   string // in words, as far as the images tell
}

// LeaderChanges lists the partitions that got another leader with the delta, from its base to img, by topic id and
// partition. New partitions, and those that are gone, are not among them.
func (d *Delta) LeaderChanges(img *Image) []LeaderChange {
	var out []LeaderChange
	for _, id := range d.ChangedTopics() {
		before, ok := d.base.TopicByID(id)
		after, still := img.TopicByID(id)
		if !ok || !still {
			continue
		}
		for _, i := range d.ChangedPartitions(id) {
			old, ok := before.Partition(i)
			now, still := after.Partition(i)
			if ok && still && old.Leader != now.Leader {
				out = append(out, LeaderChange{Topic: after.Name, Partition: i, To: now.Leader, Because: d.because(img, old, now)})
			}
		}
	}
	return out
}

func (d *Delta) because(img *Image, old, now *Partition) string {
	why := d.leaderLost(img, old, now)
	switch {
	case now.Recovering && !old.Recovering:
		return "unclean election: " + why
	case now.Leader == NoLeader && why == "":
		return fmt.Sprintf("broker %d may not lead, and nobody else is in sync", old.Leader)
	case now.Leader == NoLeader:
		return why + ", and nobody else is in sync"
	case why != "":
		return why
	case now.Leader == now.Replicas[0]:
		return "preferred leader"
	}
	return "elected"
}

// leaderLost says what has become of the old leader; "" when it could go on.
func (d *Delta) leaderLost(img *Image, old, now *Partition) string {
	id := old.Leader
	if id == NoLeader {
		return fmt.Sprintf("there was none, and broker %d is here now", now.Leader)
	}
	before, ok := d.base.Broker(id)
	b, still := img.Broker(id)
	switch {
	case !still:
		return fmt.Sprintf("broker %d was unregistered", id)
	case ok && b.Epoch != before.Epoch:
		return fmt.Sprintf("broker %d was started anew", id)
	case b.Fenced:
		return fmt.Sprintf("broker %d was fenced", id)
	case b.InControlledShutdown:
		return fmt.Sprintf("broker %d shuts down", id)
	case !slices.Contains(now.Replicas, id):
		return fmt.Sprintf("reassigned, without broker %d", id)
	case !b.HasOnlineDir(old.Directory(id)):
		return fmt.Sprintf("a log directory of broker %d has failed", id)
	}
	return ""
}
