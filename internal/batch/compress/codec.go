package compress

// Codec is a compression by its number in a batch's attributes.
type Codec uint8

// The codecs.
const (
	None Codec = iota
	Gzip
	Snappy
	Lz4
	Zstd
)

// LevelDefault asks for Kafka's default level of a codec.
const LevelDefault = -1 << 31

// String is the codec's name in compression.type.
func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case Lz4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return "unknown"
}

// Valid says whether c is one of the five.
func (c Codec) Valid() bool { return c <= Zstd }

// ParseCodec reads a codec's name; "uncompressed" is None too.
func ParseCodec(name string) (Codec, bool) {
	switch name {
	case "none", "uncompressed":
		return None, true
	case "gzip":
		return Gzip, true
	case "snappy":
		return Snappy, true
	case "lz4":
		return Lz4, true
	case "zstd":
		return Zstd, true
	}
	return None, false
}
