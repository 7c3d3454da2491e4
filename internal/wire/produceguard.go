package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// maxProduceEntries bounds the topics, partitions and tagged fields of one Produce. Its frame may be as large as
// socket.request.max.bytes, and each of them takes up to thirty times more memory than wire: without a bound a frame
// of 100 MiB without a single record could take gigabytes. No broker has so many partitions.
const maxProduceEntries = 1 << 17

var errProduceCut = errors.New("cut short")

// checkProduce walks the structure of a Produce body without allocating, stepping over the records, and fails when it
// has more than maxProduceEntries entries or ends early. ProduceRequest.json is the schema.
func checkProduce(version int16, body []byte) error {
	w := produceWalk{b: body, flexible: FlexibleRequest(produceKey, version)}
	if version >= 3 {
		w.skip(w.stringLen()) // transactional id
	}
	w.skip(2 + 4) // acks, timeout
	for topics := w.arrayLen(); topics > 0 && w.err == nil; topics-- {
		w.entry()
		if version >= 13 {
			w.skip(16)
		} else {
			w.skip(w.stringLen())
		}
		for partitions := w.arrayLen(); partitions > 0 && w.err == nil; partitions-- {
			w.entry()
			w.skip(4)
			w.skip(w.bytesLen())
			w.tags()
		}
		w.tags()
	}
	w.tags()
	return w.err
}

// produceWalk is a place in a body. After an error nothing moves any more.
type produceWalk struct {
	b        []byte
	flexible bool
	entries  int
	err      error
}

func (w *produceWalk) fail(err error) {
	if w.err == nil {
		w.err, w.b = err, nil
	}
}

func (w *produceWalk) entry() {
	if w.entries++; w.entries > maxProduceEntries {
		w.fail(fmt.Errorf("more than %d topics, partitions and tagged fields", maxProduceEntries))
	}
}

// skip steps over n bytes; null (negative) lengths have none.
func (w *produceWalk) skip(n int) {
	if n > len(w.b) {
		w.fail(errProduceCut)
	} else if n > 0 {
		w.b = w.b[n:]
	}
}

func (w *produceWalk) uvarint() uint64 {
	v, n := binary.Uvarint(w.b)
	if n <= 0 || v > 1<<32-1 {
		w.fail(errProduceCut)
		return 0
	}
	w.b = w.b[n:]
	return v
}

func (w *produceWalk) int32() int {
	if len(w.b) < 4 {
		w.fail(errProduceCut)
		return 0
	}
	v := int(int32(binary.BigEndian.Uint32(w.b)))
	w.b = w.b[4:]
	return v
}

func (w *produceWalk) arrayLen() int {
	if w.flexible {
		return int(w.uvarint()) - 1
	}
	return w.int32()
}

func (w *produceWalk) bytesLen() int { return w.arrayLen() }

func (w *produceWalk) stringLen() int {
	if w.flexible {
		return int(w.uvarint()) - 1
	}
	if len(w.b) < 2 {
		w.fail(errProduceCut)
		return 0
	}
	v := int(int16(binary.BigEndian.Uint16(w.b)))
	w.b = w.b[2:]
	return v
}

// tags steps over the tagged fields that end each struct of a flexible version.
func (w *produceWalk) tags() {
	if !w.flexible || w.err != nil {
		return
	}
	for n := w.uvarint(); n > 0 && w.err == nil; n-- {
		w.entry()
		w.uvarint()
		w.skip(int(w.uvarint()))
	}
}
