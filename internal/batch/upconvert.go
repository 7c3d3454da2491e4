package batch

import (
	"fmt"
)

// UpConvert validates what a Produce request of v0–v2 holds for a partition and makes one v2 batch of it: a message set of magic
// 0 or 1, either plain messages or one compressed wrapper. The result is fresh bytes, compressed like the source or as
// p.Target says. A v2 batch, which such requests may hold too, is validated as by Validate. An empty set is no error: Checked is
// zero, and there is nothing to append. An incomplete message at the end is ignored, as Kafka does. Errors as Validate.
func UpConvert(messageSet []byte, p *Policy, buf *Buffers) (Checked, error) {
	if buf == nil {
		buf = new(Buffers)
	}
	first, rest, err := NextEntry(messageSet)
	if err == ErrShort {
		return Checked{}, nil
	}
	if err != nil {
		return Checked{}, err
	}
	source, err := checkSet(messageSet, first.Magic(), p)
	if err != nil {
		return Checked{}, err
	}
	if first.Magic() == 2 || source != None {
		if _, _, err := NextEntry(rest); err == nil {
			return Checked{}, invalid("Compressed outer record has more than one batch")
		}
	}
	if b, ok := first.Batch(); ok {
		return Validate(b, p, buf)
	}
	v := newValidator(p, first.TimestampType(), source)
	out := buf.builder(v.options())
	for len(messageSet) > 0 {
		m, next, err := LegacyNext(messageSet)
		if err == ErrShort {
			break
		}
		if err != nil {
			return Checked{}, err
		}
		messageSet = next
		if err := v.message(m, out, buf); err != nil {
			return Checked{}, err
		}
	}
	return v.finish(out)
}

// checkSet checks every entry's size, magic and CRC, and tells the set's codec: that of its last compressed entry.
func checkSet(set []byte, magic int8, p *Policy) (Codec, error) {
	source := None
	for len(set) > 0 {
		e, rest, err := NextEntry(set)
		if err == ErrShort {
			break
		}
		if err != nil {
			return source, err
		}
		set = rest
		switch {
		case p.MaxBatch > 0 && e.Len() > int(p.MaxBatch):
			return source, p.tooLarge(e.Len())
		case !e.CheckCRC():
			return source, &CorruptError{Offset: -1, Reason: fmt.Sprintf("Record is corrupt (wrong crc of entry at offset %d) in topic partition %s.", e.LastOffset(), p.where())}
		case e.Magic() != magic:
			return source, invalid("Batch magic %d is not the same as the first batch's magic byte %d in topic partition %s", e.Magic(), magic, p.where())
		}
		if c := e.Codec(); c != None {
			if magic < 2 && c > Lz4 {
				return source, invalid("Invalid wrapper compressionType found in legacy deep record iterator %s", c)
			}
			source = c
		}
	}
	return source, nil
}

// message checks one message, or all inside a wrapper, and adds them to the batch.
func (v *validator) message(m Message, out *Builder, buf *Buffers) error {
	v.from = m.TimestampType()
	if m.Codec() == None {
		key, value, err := m.fields()
		if err != nil {
			return err
		}
		return v.rewrite(out, &Record{Offset: m.Offset(), Timestamp: m.Timestamp(), Key: key, Value: value})
	}
	var failed error
	m.deep(buf, true, func(r Record, err error) bool {
		if err == nil {
			err = v.rewrite(out, &r)
		}
		failed = err
		return err == nil
	})
	return failed
}
