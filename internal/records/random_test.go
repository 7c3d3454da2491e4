package records

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"

	"weir/internal/records/schema"
	"weir/internal/uuid"
)

// filler puts random values into messages, keeping to what one version can hold.
type filler struct {
	r       *rand.Rand
	m       *schema.Message
	version int16
	tags    bool // also unknown tagged fields
}

func loadSchemas(t testing.TB) []*schema.Message {
	t.Helper()
	all, err := schema.Load(schema.Texts())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (f *filler) message(m Message) { f.fields(reflect.ValueOf(m).Elem(), f.m.Fields) }

func (f *filler) fields(v reflect.Value, fields []*schema.Field) {
	next := uint32(0)
	for _, fd := range fields {
		if fd.Tag >= 0 {
			next = max(next, uint32(fd.Tag)+1)
		}
		dst := v.FieldByName(schema.GoName(fd.Name))
		if fd.Versions.Has(f.version) {
			f.field(dst, fd)
		} else if n, err := strconv.ParseInt(fd.Default, 10, 64); err == nil {
			dst.SetInt(n)
		}
	}
	if f.tags && f.m.Flexible.Has(f.version) {
		var tags []Tag
		for range f.r.IntN(3) {
			next += 1 + f.r.Uint32N(200)
			tags = append(tags, Tag{next, f.bytes(1)})
		}
		if f.r.IntN(20) == 0 { // more than one byte counts
			for range 140 {
				next++
				tags = append(tags, Tag{next, f.bytes(1)})
			}
		}
		v.FieldByName("UnknownTags").Set(reflect.ValueOf(tags))
	}
}

func (f *filler) field(dst reflect.Value, fd *schema.Field) {
	null := fd.Nullable && f.r.IntN(3) == 0
	switch {
	case null:
		dst.SetZero()
	case fd.Array:
		n := f.r.IntN(4)
		if f.r.IntN(30) == 0 {
			n = 200
		}
		if n == 0 && !fd.Nullable {
			return
		}
		s := reflect.MakeSlice(dst.Type(), n, n)
		for i := range n {
			f.value(s.Index(i), fd)
		}
		dst.Set(s)
	case dst.Kind() == reflect.Pointer:
		p := reflect.New(dst.Type().Elem())
		f.value(p.Elem(), fd)
		dst.Set(p)
	default:
		f.value(dst, fd)
	}
}

func (f *filler) value(dst reflect.Value, fd *schema.Field) {
	switch fd.Kind {
	case "bool":
		dst.SetBool(f.r.IntN(2) == 0)
	case "int8", "int16", "int32", "int64":
		dst.SetInt(int64(f.r.Uint64()) >> f.r.IntN(64) << (64 - dst.Type().Bits()) >> (64 - dst.Type().Bits()))
	case "uint16", "uint32":
		dst.SetUint(f.r.Uint64() >> (64 - dst.Type().Bits()))
	case "float64":
		dst.SetFloat(f.r.NormFloat64())
	case "string":
		dst.SetString(string([]rune{'a' + f.r.Int32N(26), 'é', '水'}[:f.r.IntN(4)]))
	case "bytes":
		min := 1
		if fd.Nullable {
			min = 0
		}
		dst.SetBytes(f.bytes(min))
	case "uuid":
		var u uuid.UUID
		copy(u[:], f.bytes(16))
		dst.Set(reflect.ValueOf(u))
	default:
		f.fields(dst, f.m.StructFields(fd))
	}
}

func (f *filler) bytes(min int) []byte {
	b := make([]byte, min+f.r.IntN(20))
	for i := range b {
		b[i] = byte(f.r.Uint32())
	}
	return b
}

// eachRandom calls fn with n random messages of every type and version.
func eachRandom(t testing.TB, n int, tags bool, fn func(m Message, s *schema.Message, version int16)) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range loadSchemas(t) {
		for v := s.Versions.Min; v <= s.Versions.Max; v++ {
			for range n {
				m := New(s.Name)
				f := filler{r, s, v, tags}
				f.message(m)
				fn(m, s, v)
			}
		}
	}
}

func TestRoundTrip(t *testing.T) {
	prefix := []byte("prefix")
	eachRandom(t, 10, true, func(m Message, s *schema.Message, v int16) {
		data := m.AppendTo(nil, v)
		if got := m.AppendTo(bytes.Clone(prefix), v); !bytes.Equal(got, append(bytes.Clone(prefix), data...)) {
			t.Fatalf("%s v%d: another result behind a prefix", s.Name, v)
		}
		back := New(s.Name)
		if err := back.ReadFrom(data, v); err != nil {
			t.Fatalf("%s v%d: %v of %#v", s.Name, v, err, m)
		}
		if !reflect.DeepEqual(m, back) {
			t.Fatalf("%s v%d:\nwrote %#v\nread  %#v", s.Name, v, m, back)
		}
		rest, err := back.ReadPrefix(append(bytes.Clone(data), 7, 8), v)
		if err != nil || !bytes.Equal(rest, []byte{7, 8}) {
			t.Fatalf("%s v%d: rest %v, %v", s.Name, v, rest, err)
		}
		if err := back.ReadFrom(append(bytes.Clone(data), 7), v); err == nil {
			t.Fatalf("%s v%d: a byte behind the end was accepted", s.Name, v)
		}
	})
}

func TestCutBytesFail(t *testing.T) {
	eachRandom(t, 3, true, func(m Message, s *schema.Message, v int16) {
		data := m.AppendTo(nil, v)
		for n := range data {
			if n > 300 {
				break
			}
			if err := New(s.Name).ReadFrom(data[:n:n], v); err == nil {
				t.Fatalf("%s v%d: %d of %d bytes were accepted", s.Name, v, n, len(data))
			}
		}
	})
}
