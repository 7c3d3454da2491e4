package classic

import "encoding/binary"

// subscription adds the topics of a consumer's subscription: a version, then an
// array of strings; what follows is of no interest here. It reads foreign bytes.
func subscription(b []byte, topics map[string]bool) bool {
	if len(b) < 6 || int16(binary.BigEndian.Uint16(b)) < 0 {
		return false
	}
	n := int32(binary.BigEndian.Uint32(b[2:]))
	b = b[6:]
	if n < 0 {
		return false
	}
	for range n {
		if len(b) < 2 {
			return false
		}
		size := int(int16(binary.BigEndian.Uint16(b)))
		if size < 0 || len(b) < 2+size {
			return false
		}
		topics[string(b[2:2+size])] = true
		b = b[2+size:]
	}
	return true
}
