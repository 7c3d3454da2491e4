package metalog

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	"weir/internal/batch"
	"weir/internal/kraft"
	"weir/internal/records"
	"weir/internal/vfs"
)

// Content is what a snapshot file is made of.
type Content struct {
	ID          kraft.Position
	TimestampMs int64           // of the last record contained; 0 in bootstrap.checkpoint
	Version     int16           // kraft.version
	Voters      *kraft.VoterSet // written from kraft.version 1 on
	Records     iter.Seq[records.Versioned]
}

// BootstrapName is the file that holds the records of a cluster's first start.
const BootstrapName = "bootstrap.checkpoint"

// WriteBootstrap writes bootstrap.checkpoint of a metadata log directory. An
// existing file is replaced.
func WriteBootstrap(fsys vfs.FS, dir string, recs []records.Versioned, nowMs int64) error {
	c := Content{Records: func(yield func(records.Versioned) bool) {
		for _, r := range recs {
			if !yield(r) {
				return
			}
		}
	}}
	return writeFile(fsys, filepath.Join(dir, BootstrapName), c, nowMs, 8<<20)
}

// WriteVoters writes 0-0.checkpoint: the first voters of a cluster with dynamic
// voters (kafka-storage format --standalone or --initial-controllers). The
// partition's directory is made when missing.
func WriteVoters(fsys vfs.FS, dir string, set kraft.VoterSet, nowMs int64) error {
	part := filepath.Join(dir, PartitionDir)
	if err := fsys.MkdirAll(part, 0o755); err != nil {
		return err
	}
	c := Content{TimestampMs: nowMs, Version: 1, Voters: &set}
	if err := writeFile(fsys, filepath.Join(part, fileName(kraft.Position{})), c, nowMs, 8<<20); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

// writeFile writes a snapshot beside its name and renames it into place, so
// that the name stands for a whole, durable file.
func writeFile(fsys vfs.FS, name string, c Content, nowMs int64, maxBatch int32) error {
	part := name + ".part"
	f, err := fsys.Open(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	w := &fileWriter{file: f, epoch: c.ID.Epoch, nowMs: nowMs, max: int(maxBatch)}
	err = w.content(c)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("snapshot %s: %w", name, err), fsys.Remove(part))
	}
	if err := fsys.Rename(part, name); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}

// fileWriter writes batches numbered from 0.
type fileWriter struct {
	file   vfs.File
	at     int64 // bytes written
	offset int64
	epoch  int32
	nowMs  int64
	max    int
}

func (w *fileWriter) content(c Content) error {
	h := newBuilder(w.offset, w.epoch, true)
	m := records.NewSnapshotHeaderRecord()
	m.LastContainedLogTimestamp = c.TimestampMs
	h.Append(w.nowMs, records.ControlKey(records.ControlSnapshotHeader), m.AppendTo(nil, 0), nil)
	if c.Version > 0 {
		appendVersion(h, w.nowMs, c.Version)
		if c.Voters != nil {
			appendVoters(h, w.nowMs, *c.Voters)
		}
	}
	if err := w.write(h); err != nil {
		return err
	}
	if c.Records != nil {
		if err := w.records(c.Records); err != nil {
			return err
		}
	}
	f := newBuilder(w.offset, w.epoch, true)
	footer := records.NewSnapshotFooterRecord()
	f.Append(w.nowMs, records.ControlKey(records.ControlSnapshotFooter), footer.AppendTo(nil, 0), nil)
	return w.write(f)
}

func (w *fileWriter) records(recs iter.Seq[records.Versioned]) error {
	var value []byte
	b := newBuilder(w.offset, w.epoch, false)
	for r := range recs {
		value = records.AppendMetadata(value[:0], r)
		if n := b.RawLen() + len(value) + recordOverhead; n > w.max {
			if b.Count() == 0 {
				return &TooLargeError{Size: n, Limit: w.max}
			}
			if err := w.write(b); err != nil {
				return err
			}
			b = newBuilder(w.offset, w.epoch, false)
		}
		b.Append(w.nowMs, nil, value, nil)
	}
	if b.Count() == 0 {
		return nil
	}
	return w.write(b)
}

func (w *fileWriter) write(b *batch.Builder) error {
	n := int64(b.Count())
	raw := b.Build()
	if _, err := w.file.WriteAt(raw, w.at); err != nil {
		return err
	}
	w.at += int64(len(raw))
	w.offset += n
	return nil
}

// snapshotHead is what a snapshot file says before its records.
type snapshotHead struct {
	timestampMs int64
	control     []kraft.Control // kraft.version and voters, with offset at
}

// readFile reads the file's batches in order. Records are handed to yield, which
// may be nil; at is the offset that its control records count as. A file without
// header or footer, or with a broken batch, is an error.
func readFile(fsys vfs.FS, name string, at int64, yield func(records.Versioned) bool) (head snapshotHead, err error) {
	f, err := fsys.Open(name, os.O_RDONLY, 0)
	if err != nil {
		return head, err
	}
	defer f.Close()
	var buf batch.Buffers
	var sawHeader, sawFooter bool
	for b, err := range batches(f) {
		if err != nil {
			return head, fmt.Errorf("snapshot %s: %w", name, err)
		}
		if sawFooter {
			return head, fmt.Errorf("snapshot %s: data after the footer", name)
		}
		if !b.IsControl() {
			if !sawHeader {
				return head, fmt.Errorf("snapshot %s: records before the header", name)
			}
			if yield == nil {
				continue
			}
			recs, err := parse(b, &buf)
			if err != nil {
				return head, fmt.Errorf("snapshot %s: %w", name, err)
			}
			for _, r := range recs {
				if !yield(r) {
					return head, nil
				}
			}
			continue
		}
		if err := head.read(b, at, &sawHeader, &sawFooter); err != nil {
			return head, fmt.Errorf("snapshot %s: %w", name, err)
		}
	}
	if !sawHeader || !sawFooter {
		return head, fmt.Errorf("snapshot %s: cut: header %t, footer %t", name, sawHeader, sawFooter)
	}
	return head, nil
}

func (h *snapshotHead) read(b batch.Batch, at int64, header, footer *bool) error {
	for r, err := range b.Records(nil) {
		if err != nil {
			return err
		}
		m, err := records.ParseControl(r.Key, r.Value)
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *records.SnapshotHeaderRecord:
			*header, h.timestampMs = true, m.LastContainedLogTimestamp
		case *records.SnapshotFooterRecord:
			*footer = true
		case *records.KRaftVersionRecord:
			v := m.KRaftVersion
			h.control = append(h.control, kraft.Control{Offset: at, Version: &v})
		case *records.VotersRecord:
			set, err := votersOf(m)
			if err != nil {
				return err
			}
			h.control = append(h.control, kraft.Control{Offset: at, Voters: set})
		}
	}
	return nil
}

// batches reads a file of batches piece by piece and checks each CRC. The batch
// yielded is valid until the next.
func batches(f vfs.File) iter.Seq2[batch.Batch, error] {
	return func(yield func(batch.Batch, error) bool) {
		buf := make([]byte, 0, 64<<10)
		var at int64 // of the end of buf
		for {
			b, rest, err := batch.Next(buf)
			switch {
			case err == nil && !b.CheckCRC():
				yield(nil, fmt.Errorf("batch at byte %d: wrong CRC", at-int64(len(buf))))
				return
			case err == nil:
				if !yield(b, nil) {
					return
				}
				buf = rest
				continue
			case !errors.Is(err, batch.ErrShort):
				yield(nil, err)
				return
			}
			more := append(make([]byte, 0, max(2*len(buf), 64<<10)), buf...)
			n, err := f.ReadAt(more[len(more):cap(more)], at)
			more = more[:len(more)+n]
			at += int64(n)
			if n == 0 {
				if err != nil && err != io.EOF {
					yield(nil, err)
				} else if len(buf) > 0 {
					yield(nil, fmt.Errorf("batch at byte %d is cut", at-int64(len(buf))))
				}
				return
			}
			buf = more
		}
	}
}
