package wire

// ByTopic collects the rows of a request by topic id: each topic stands once, in the order in which the topics came first.
// T is the request's form of a topic. The zero value is ready.
type ByTopic[T any] struct {
	Topics []T
	at     map[[16]byte]int
}

// Of is the entry of a topic, which begin makes when it is new. The pointer is good until the next call.
func (b *ByTopic[T]) Of(id [16]byte, begin func() T) *T {
	i, ok := b.at[id]
	if !ok {
		if b.at == nil {
			b.at = map[[16]byte]int{}
		}
		i = len(b.Topics)
		b.at[id] = i
		b.Topics = append(b.Topics, begin())
	}
	return &b.Topics[i]
}
