package image

import (
	"cmp"
	"slices"
	"strings"

	"github.com/benbjohnson/immutable"

	"weir/internal/records"
	"weir/internal/uuid"
)

// keptKind sorts the records that are kept verbatim into the places where a snapshot writes them.
type keptKind uint8

// In the order of a snapshot.
const (
	keptQuota keptKind = iota
	keptACL
	keptScram
	keptToken
	keptUnknown // by order of arrival
)

// keptKey identifies one kept record; a later record with the same key replaces it.
type keptKey struct {
	kind keptKind
	name string // canonical identity within the kind
	seq  int64  // for keptUnknown, whose identity nobody knows
}

type keptOrder struct{}

// Compare orders kept records as a snapshot lists them.
func (keptOrder) Compare(a, b keptKey) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.seq, b.seq), cmp.Compare(a.name, b.name))
}

// kept holds records whose meaning Weir does not serve yet.
type kept struct {
	records *immutable.SortedMap[keptKey, records.Versioned]
	nextSeq int64
}

func newKept() kept {
	return kept{records: immutable.NewSortedMap[keptKey, records.Versioned](keptOrder{})}
}

func (k *kept) set(key keptKey, v records.Versioned) { k.records = k.records.Set(key, v) }
func (k *kept) remove(key keptKey)                   { k.records = k.records.Delete(key) }

func (k *kept) append(v records.Versioned) {
	k.records = k.records.Set(keptKey{kind: keptUnknown, seq: k.nextSeq}, v)
	k.nextSeq++
}

// write puts the kept records of kinds from … to into the sink.
func (k *kept) write(from, to keptKind, sink recordSink) bool {
	it := k.records.Iterator()
	for it.Seek(keptKey{kind: from, seq: -1}); !it.Done(); {
		key, v, ok := it.Next()
		if !ok || key.kind > to {
			return true
		}
		if !sink(v) {
			return false
		}
	}
	return true
}

// Kept yields the records of one subject as they came: ACLs, quotas, SCRAM credentials and delegation tokens, until their
// own packages read them.
func (i *Image) Kept(yield func(records.Versioned) bool) { i.kept.write(keptQuota, keptUnknown, yield) }

func aclKey(id uuid.UUID) keptKey   { return keptKey{kind: keptACL, name: string(id[:])} }
func tokenKey(token string) keptKey { return keptKey{kind: keptToken, name: token} }
func scramKey(mechanism int8, user string) keptKey {
	return keptKey{kind: keptScram, name: string(rune(mechanism)) + user}
}

// quotaKey identifies a quota by its entity, whose parts come in any order, and its key. A null name is the default entity.
func quotaKey(r *records.ClientQuotaRecord) keptKey {
	parts := make([]string, 0, len(r.Entity))
	for _, e := range r.Entity {
		s := e.EntityType + "\x00d"
		if e.EntityName != nil {
			s = e.EntityType + "\x00n" + *e.EntityName
		}
		parts = append(parts, s)
	}
	slices.Sort(parts)
	return keptKey{kind: keptQuota, name: strings.Join(parts, "\x01") + "\x02" + r.Key}
}
