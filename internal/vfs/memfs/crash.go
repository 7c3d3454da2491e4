package memfs

// nameChange puts a node (nil: nothing) under a name of a directory.
type nameChange struct {
	dir  *node
	name string
	to   *node
}

// nameOp is one atomic name operation: a creation or removal is one change, a rename two.
type nameOp []nameChange

// setNamesLocked does a name operation and notes it in the journal.
func (f *FS) setNamesLocked(changes ...nameChange) {
	op := nameOp(changes)
	for _, c := range op {
		if old := c.dir.names[c.name]; old != nil && !old.dir && !op.moves(old) {
			old.forget()
		}
		set(c.dir.names, c)
	}
	f.journal = append(f.journal, op)
}

// moves says that a node that loses a name in op gets another one.
func (op nameOp) moves(n *node) bool {
	for _, c := range op {
		if c.to == n {
			return true
		}
	}
	return false
}

// forget gives the room of a file back that lost its name.
func (n *node) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone = true
	n.fs.give(int64(len(n.data)))
}

func set(m map[string]*node, c nameChange) {
	if c.to == nil {
		delete(m, c.name)
	} else {
		m[c.name] = c.to
	}
}

// syncNamesLocked makes the operations sure that touch a directory.
func (f *FS) syncNamesLocked(dir *node) {
	rest := f.journal[:0]
	for _, op := range f.journal {
		touches := false
		for _, c := range op {
			touches = touches || c.dir == dir
		}
		if !touches {
			rest = append(rest, op)
			continue
		}
		for _, c := range op {
			set(c.dir.sure, c)
		}
	}
	clear(f.journal[len(rest):])
	f.journal = rest
}

// Dice is what Crash needs of a random source: uniform in [0, n). *rng.Source is one.
type Dice interface{ IntN(n int) int }

// sector is the unit in which unsynced writes survive.
const sector = 512

// Crash returns the file system after a power cut at this moment. With nil dice nothing survives that was not synced.
// With dice, of the unsynced name operations the oldest few survive, and of the unsynced bytes of each file any
// sectors of 512 bytes, with zeros or the older content between them. A truncation is a change of metadata, which file
// systems keep in order: when it is lost, so is everything done to the file after it.
func (f *FS) Crash(dice Dice) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := newFS()
	c.now, c.capacity, c.session = f.now, f.capacity, f.session+1
	survive := 0
	if dice != nil {
		survive = dice.IntN(len(f.journal) + 1)
	}
	// The names are worked out on a copy: the old file system may go on, and crash again.
	names := map[*node]map[string]*node{}
	for _, op := range f.journal[:survive] {
		for _, ch := range op {
			m := names[ch.dir]
			if m == nil {
				m = make(map[string]*node, len(ch.dir.sure))
				for k, v := range ch.dir.sure {
					m[k] = v
				}
				names[ch.dir] = m
			}
			set(m, ch)
		}
	}
	cp := copier{to: c, names: names, dice: dice, done: map[*node]*node{}}
	c.root = cp.node(f.root)
	return c
}

// copier copies what a power cut leaves of a tree.
type copier struct {
	to    *FS
	names map[*node]map[string]*node // directories with surviving unsynced names
	dice  Dice
	done  map[*node]*node
}

func (c *copier) node(n *node) *node {
	if n2 := c.done[n]; n2 != nil {
		return n2
	}
	n2 := &node{fs: c.to, dir: n.dir, mtime: n.mtime}
	c.done[n] = n2
	if !n.dir {
		n2.data = survivingData(n, c.dice)
		n2.durable = append([]byte(nil), n2.data...)
		c.to.usage.used += int64(len(n2.data))
		return n2
	}
	names := c.names[n]
	if names == nil {
		names = n.sure
	}
	n2.names, n2.sure = map[string]*node{}, map[string]*node{}
	for _, name := range sortedNames(names) {
		child := c.node(names[name])
		n2.names[name], n2.sure[name] = child, child
	}
	return n2
}

// survivingData is the content of a file after a power cut.
func survivingData(n *node, dice Dice) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := append([]byte(nil), n.durable...)
	if dice == nil || len(n.pending) == 0 {
		return b
	}
	// A file keeps about all, about half or almost none of its dirty sectors: mixed odds find more than one fixed.
	odds := []int{1, 2, 16}[dice.IntN(3)]
	for _, op := range n.pending {
		if op.data == nil {
			if dice.IntN(2) == 0 {
				return b
			}
			b = resize(b, op.off)
			continue
		}
		end := op.off + int64(len(op.data))
		for at := op.off; at < end; {
			next := min((at/sector+1)*sector, end)
			if dice.IntN(odds) == 0 {
				b = apply(b, dataOp{off: at, data: op.data[at-op.off : next-op.off]})
			}
			at = next
		}
		// The size may be on disk though the bytes are not: then they read as zeros.
		if end > int64(len(b)) && dice.IntN(4) == 0 {
			b = resize(b, end)
		}
	}
	return b
}
