package image

import "weir/internal/records"

// Loader turns the committed batches of the metadata log into published images. It hides metadata transactions: while one is open
// nothing is published, and an aborted one leaves no trace. Not safe for use by several goroutines.
type Loader struct {
	published *Image
	delta     *Delta
	prov      Provenance
	pending   bool
}

// NewLoader starts at a published image, New() for an empty log.
func NewLoader(published *Image) *Loader {
	return &Loader{published: published, delta: NewDelta(published), prov: published.Provenance}
}

// Published returns the image last published.
func (l *Loader) Published() *Image { return l.published }

// Replay applies the records of one batch. The provenance names the batch's last offset, which must be reported even for batches
// without records of ours (control batches). After an error the loader is unusable.
func (l *Loader) Replay(batch []records.Versioned, p Provenance) error {
	for _, v := range batch {
		if err := l.delta.Replay(v); err != nil {
			return err
		}
	}
	l.prov, l.pending = p, true
	return nil
}

// LoadSnapshot replaces the state by a snapshot's records; what they do not mention is gone.
func (l *Loader) LoadSnapshot(content func(yield func(records.Versioned) bool), p Provenance) error {
	d := NewSnapshotDelta(l.published)
	var err error
	content(func(v records.Versioned) bool {
		err = d.Replay(v)
		return err == nil
	})
	if err != nil {
		return err
	}
	d.FinishSnapshot()
	l.delta, l.prov, l.pending = d, p, true
	return nil
}

// Publish returns the newest image that readers may see, with the delta from the one published before. ok is false when there is
// nothing new to see: no batch since, or a metadata transaction is open. Call it after each batch, or after each group of batches
// that were read together.
func (l *Loader) Publish() (image *Image, delta *Delta, ok bool) {
	if !l.pending || l.delta.next.InTransaction() {
		return nil, nil, false
	}
	delta = l.delta
	l.published = delta.Apply(l.prov)
	l.delta = NewDelta(l.published)
	l.pending = false
	return l.published, delta, true
}
