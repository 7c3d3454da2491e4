package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func produceRequest(version int16) *kmsg.ProduceRequest {
	id := "txn"
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.Acks, r.TimeoutMillis, r.TransactionID = version, -1, 30000, &id
	for i := range 3 {
		t := kmsg.NewProduceRequestTopic()
		t.Topic, t.TopicID = strings.Repeat("t", i*70), [16]byte{byte(i)}
		for p := range i * 5 {
			rp := kmsg.NewProduceRequestTopicPartition()
			rp.Partition = int32(p)
			if p%3 != 0 {
				rp.Records = bytes.Repeat([]byte{7}, p*20)
			}
			t.Partitions = append(t.Partitions, rp)
		}
		r.Topics = append(r.Topics, t)
	}
	return r
}

func TestCheckProduceFollowsEveryVersion(t *testing.T) {
	for version := int16(0); version <= 13; version++ {
		body := produceRequest(version).AppendTo(nil)
		if err := checkProduce(version, body); err != nil {
			t.Errorf("v%d: %v", version, err)
		}
		for cut := range body {
			got := checkProduce(version, body[:cut])
			fresh := kmsg.NewPtrProduceRequest()
			fresh.Version = version
			if want := fresh.ReadFrom(body[:cut]); (got == nil) != (want == nil) {
				t.Fatalf("v%d cut at %d of %d: %v, the codec says %v", version, cut, len(body), got, want)
			}
		}
	}
}

// Structure without records must not turn a large frame into gigabytes.
func TestProduceOfEmptyEntriesIsRefused(t *testing.T) {
	const size = 8 << 20
	topics := append([]byte{0, 0, 1, 0, 0, 0, 1}, binary.AppendUvarint(nil, size/3)...)
	topics = append(topics, bytes.Repeat([]byte{1, 1, 0}, size/3)...)
	tags := append([]byte{0, 0, 1, 0, 0, 0, 1, 1}, binary.AppendUvarint(nil, size/6)...)
	for i := range uint64(size / 6) {
		tags = append(binary.AppendUvarint(tags, i), 0)
	}
	for name, body := range map[string][]byte{"topics": topics, "tags": tags} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := ReadRequest(Header{Key: 0, Version: 9}, body)
		runtime.ReadMemStats(&after)
		var be *BodyError
		if !errors.As(err, &be) || !strings.Contains(err.Error(), "more than 131072") {
			t.Errorf("%s: %v", name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
			t.Errorf("%s: %d bytes allocated", name, n)
		}
	}
}

func FuzzCheckProduce(f *testing.F) {
	for version := int16(0); version <= 13; version++ {
		f.Add(version, produceRequest(version).AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, version int16, body []byte) {
		if version < 0 || version > 13 {
			return
		}
		r := kmsg.NewPtrProduceRequest()
		r.Version = version
		// What the guard lets through must be what the codec reads; the codec may be stricter or looser on rubbish
		// only where nothing is allocated for it.
		if err := checkProduce(version, body); err != nil {
			return
		}
		if err := r.ReadFrom(body); err != nil {
			return
		}
		n := len(r.Topics)
		for i := range r.Topics {
			n += len(r.Topics[i].Partitions)
		}
		if n > maxProduceEntries {
			t.Fatalf("%d entries passed", n)
		}
	})
}

func BenchmarkCheckProduce(b *testing.B) {
	body := produceRequest(9).AppendTo(nil)
	for b.Loop() {
		if err := checkProduce(9, body); err != nil {
			b.Fatal(err)
		}
	}
}
