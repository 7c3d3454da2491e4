package assignor

import (
	"errors"

	"weir/internal/uuid"
)

type topicPartition struct {
	topic     uuid.UUID
	partition int32
}

// uniform deals all topics out to members that all subscribe to them.
type uniform struct {
	g          *Group
	subscribed map[uuid.UUID]bool
	// free are partitions without an owner: first those that nobody had, then what
	// is taken from those who have too much.
	free []topicPartition
	// Each member gets least partitions, and extra of them one more.
	least, extra int
	short        []room
	out          map[string]Assignment
}

// room is how many partitions a member may still get.
type room struct {
	member string
	left   int
	has    *table
}

func assignUniform(g *Group) (map[string]Assignment, error) {
	topics := g.Members[0].Topics
	if len(topics) == 0 {
		return nil, nil
	}
	u := &uniform{g: g, subscribed: map[uuid.UUID]bool{}, out: make(map[string]Assignment, len(g.Members))}
	all := 0
	for _, id := range topics {
		u.subscribed[id] = true
		n := g.Partitions(id)
		for p := range n {
			if !g.Taken(id, p) {
				u.free = append(u.free, topicPartition{id, p})
			}
		}
		all += int(n)
	}
	u.least, u.extra = all/len(g.Members), all%len(g.Members)
	for i := range g.Members {
		u.keep(&g.Members[i], len(g.Members)-i)
	}
	return u.out, u.dealFree()
}

// keep lets a member have what it had, as far as it subscribes to it and as it is
// not more than its part. left counts the members from this one on.
func (u *uniform) keep(m *Member, left int) {
	quota, hasExtra := u.least, u.extra > 0
	if hasExtra {
		quota++
	}
	a, changed := copyOf(m.Had), false
	for _, x := range m.Had {
		id, ps := x.Topic, x.Partitions
		switch {
		case !u.subscribed[id]:
			a.remove(id)
			changed = true
		case len(ps) <= quota:
			quota -= len(ps)
		default:
			changed = true
			for _, p := range ps {
				if quota > 0 {
					quota--
				} else {
					a.take(id, p)
					u.free = append(u.free, topicPartition{id, p})
				}
			}
		}
	}
	if quota > 0 && hasExtra && left > u.extra {
		// Others may rather have the partition that is one more, unless so few are
		// left that each has to take one.
		quota, hasExtra = quota-1, false
	}
	if quota > 0 {
		u.short = append(u.short, room{m.ID, quota, a})
	}
	if hasExtra {
		u.extra--
	}
	u.out[m.ID] = m.Had
	if changed {
		u.out[m.ID] = a.assignment()
	}
}

func (u *uniform) dealFree() error {
	for _, r := range u.short {
		n := min(r.left, len(u.free))
		for _, tp := range u.free[:n] {
			r.has.add(tp.topic, tp.partition)
		}
		if u.free = u.free[n:]; n > 0 {
			u.out[r.member] = r.has.assignment()
		}
	}
	if len(u.free) > 0 {
		return errors.New("partitions were left unassigned")
	}
	return nil
}
