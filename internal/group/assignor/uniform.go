package assignor

import (
	"errors"

	"weir/internal/uuid"
)

// assignUniform deals all topics out to members that all subscribe to them. Every
// member has a quota; what it had beyond that goes to those who are below theirs,
// after what nobody had.
func assignUniform(g *Group) (map[string]Assignment, error) {
	topics := g.Members[0].Topics
	if len(topics) == 0 {
		return nil, nil
	}
	all, owners := 0, make(map[uuid.UUID][]int, len(topics))
	var free []topicPartition
	for _, id := range topics {
		n := g.Partitions(id)
		all, owners[id] = all+int(n), unowned(n)
		for p := range n {
			if !g.Taken(id, p) {
				free = append(free, topicPartition{id, p})
			}
		}
	}
	hands := make([]*table, len(g.Members))
	had := make([][]topicPartition, len(g.Members))
	for i := range g.Members {
		hands[i] = copyOf(g.Members[i].Had)
		had[i] = hands[i].filter(func(id uuid.UUID, p int32) bool { return claim(owners[id], p, i) })
	}
	lacks := quotas(had, all)
	for i := range had {
		kept, surplus := split(had[i], lacks[i])
		lacks[i] -= len(kept)
		for _, tp := range surplus {
			hands[i].take(tp.topic, tp.partition)
		}
		free = append(free, surplus...)
	}
	for i, n := range lacks {
		n = min(n, len(free))
		for _, tp := range free[:n] {
			hands[i].add(tp.topic, tp.partition)
		}
		free = free[n:]
	}
	if len(free) > 0 {
		return nil, errors.New("partitions were left unassigned")
	}
	return results(g, hands), nil
}

// quotas is how many of all partitions each member is to have. They differ by at
// most one. The larger ones go to the first who had that many, for then fewer
// partitions move; those that are still left when there are only as many members
// left go to these.
func quotas(had [][]topicPartition, all int) []int {
	members := len(had)
	least, larger := all/members, all%members
	qs := make([]int, members)
	for i := range qs {
		qs[i] = least
		if larger > 0 && (len(had[i]) > least || members-i <= larger) {
			qs[i]++
			larger--
		}
	}
	return qs
}

// split divides what a member had into what is within its quota and the rest.
func split(had []topicPartition, quota int) (kept, surplus []topicPartition) {
	n := min(quota, len(had))
	return had[:n], had[n:]
}

// results lists what each member has now. What has not changed keeps its order.
func results(g *Group, hands []*table) map[string]Assignment {
	out := make(map[string]Assignment, len(hands))
	for i, m := range g.Members {
		if out[m.ID] = m.Had; hands[i].changed {
			out[m.ID] = hands[i].assignment()
		}
	}
	return out
}
