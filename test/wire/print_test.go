package wire

import (
	"encoding/base64"
	"fmt"
	"net"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"weir/internal/batch"
)

// names replaces what differs from run to run by names that tell equal from
// unequal: the first topic id seen is <id 1>, and so on.
type names struct {
	node *node
	seen map[string]string
	used map[string]int
}

func newNames(n *node) *names {
	return &names{node: n, seen: map[string]string{}, used: map[string]int{}}
}

func (n *names) of(kind string, v any) string {
	key := fmt.Sprint(kind, v)
	if n.seen[key] == "" {
		n.used[kind]++
		n.seen[key] = fmt.Sprintf("<%s %d>", kind, n.used[kind])
	}
	return n.seen[key]
}

// randomUUID is the form of ids that a node makes up itself, as in member ids.
var randomUUID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`)

// text replaces addresses and directories of the node, and random ids, in a text.
func (n *names) text(s string) string {
	s = randomUUID.ReplaceAllStringFunc(s, func(id string) string { return n.of("uuid", id) })
	s = strings.ReplaceAll(s, n.node.dir, "<dir>")
	for _, a := range []struct{ addr, name string }{{n.node.main, "main"}, {n.node.second, "second"}, {n.node.ctl, "controller"}} {
		host, port, err := net.SplitHostPort(a.addr)
		if err != nil {
			continue
		}
		s = strings.ReplaceAll(s, a.addr, "<"+a.name+">")
		s = strings.ReplaceAll(s, net.JoinHostPort(host, port), "<"+a.name+">")
	}
	return s
}

func (n *names) port(p int64) string {
	for _, a := range []struct{ addr, name string }{{n.node.main, "main"}, {n.node.second, "second"}, {n.node.ctl, "controller"}} {
		if strings.HasSuffix(a.addr, fmt.Sprintf(":%d", p)) {
			return "<port of " + a.name + ">"
		}
	}
	return fmt.Sprint(p)
}

// printer writes an answer as indented text, one field or scalar struct a line.
type printer struct {
	out   *strings.Builder
	names *names
	hide  map[string]bool
	since time.Time
}

func (p *printer) message(m any) { p.fields(reflect.ValueOf(m).Elem(), "  ") }

// fields prints a struct: first its scalars on one line, then what is nested.
func (p *printer) fields(v reflect.Value, indent string) {
	var line []string
	type nested struct {
		name string
		v    reflect.Value
	}
	var below []nested
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		if !v.Type().Field(i).IsExported() || name == "Version" || name == "ThrottleMillis" || p.hide[name] {
			continue
		}
		if name == "UnknownTags" {
			if f.Addr().MethodByName("Len").Call(nil)[0].Int() > 0 {
				line = append(line, "UnknownTags!")
			}
			continue
		}
		if s, ok := p.scalar(name, f); ok {
			line = append(line, name+"="+s)
			continue
		}
		if f.Kind() == reflect.Struct {
			if s := p.small(f); s != "" {
				line = append(line, name+"{"+s+"}")
			}
			continue
		}
		below = append(below, nested{name, f})
	}
	if len(line) > 0 {
		fmt.Fprintf(p.out, "%s%s\n", indent, strings.Join(line, " "))
	}
	for _, b := range below {
		p.nested(b.name, b.v, indent)
	}
}

// small prints a struct of scalars, "" when all of them have their defaults.
func (p *printer) small(v reflect.Value) string {
	def := reflect.New(v.Type())
	def.MethodByName("Default").Call(nil)
	if reflect.DeepEqual(def.Elem().Interface(), v.Interface()) {
		return ""
	}
	var line []string
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; name != "UnknownTags" {
			s, _ := p.scalar(name, v.Field(i))
			line = append(line, name+"="+s)
		}
	}
	return strings.Join(line, " ")
}

func (p *printer) nested(name string, f reflect.Value, indent string) {
	switch {
	case f.Kind() == reflect.Pointer:
		fmt.Fprintf(p.out, "%s%s\n", indent, name)
		p.fields(f.Elem(), indent+"  ")
	case f.Type().Elem().Kind() == reflect.Uint8:
		p.records(name, f.Bytes(), indent)
	default:
		fmt.Fprintf(p.out, "%s%s\n", indent, name)
		for i := range f.Len() {
			fmt.Fprintf(p.out, "%s -\n", indent)
			p.fields(f.Index(i), indent+"  ")
		}
	}
}

// scalar prints a value that fits on a line; ok is false for what does not.
func (p *printer) scalar(name string, f reflect.Value) (string, bool) {
	switch f.Kind() {
	case reflect.Bool:
		return fmt.Sprint(f.Bool()), true
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint16, reflect.Uint32:
		n := int64(0)
		if f.CanInt() {
			n = f.Int()
		} else {
			n = int64(f.Uint())
		}
		return p.number(name, n), true
	case reflect.String:
		return fmt.Sprintf("%q", p.names.text(f.String())), true
	case reflect.Float64:
		return fmt.Sprint(f.Float()), true
	case reflect.Array:
		return p.id(f.Interface().([16]byte)), true
	case reflect.Pointer:
		if f.IsNil() {
			return "null", true
		}
		return p.scalar(name, f.Elem())
	case reflect.Slice:
		if f.Type().Elem().Kind() == reflect.Uint8 && name != "Records" && name != "RecordBatches" {
			return fmt.Sprintf("%q", f.Bytes()), true
		}
		if f.IsNil() {
			return "null", true
		}
		if f.Len() == 0 {
			return "[]", true
		}
		return p.list(name, f)
	}
	return "", false
}

// list prints a list of scalars.
func (p *printer) list(name string, f reflect.Value) (string, bool) {
	if k := f.Type().Elem().Kind(); k == reflect.Struct || k == reflect.Uint8 {
		return "", false
	}
	var items []string
	for i := range f.Len() {
		s, _ := p.scalar(name, f.Index(i))
		items = append(items, s)
	}
	return "[" + strings.Join(items, " ") + "]", true
}

func (p *printer) id(b [16]byte) string {
	if b == [16]byte{} {
		return "zero"
	}
	if b[0] == 0 && [15]byte(b[:15]) == [15]byte{} {
		return fmt.Sprintf("reserved-%d", b[15])
	}
	return p.names.of("id", base64.RawURLEncoding.EncodeToString(b[:]))
}

// number prints a number: error codes with their names, and what differs from
// run to run as a name.
func (p *printer) number(name string, n int64) string {
	switch {
	case name == "ErrorCode" && n != 0:
		if e, ok := kerr.ErrorForCode(int16(n)).(*kerr.Error); ok {
			return e.Message
		}
	case name == "Port":
		return p.names.port(n)
	case name == "SessionID" && n > 0:
		return p.names.of("session", n)
	case name == "ProducerID" && n >= 0:
		return p.names.of("producer", n)
	case p.recent(n):
		return "<now>"
	case (name == "TotalBytes" || name == "UsableBytes") && n > 0:
		return "<bytes>"
	case name == "FinalizedFeaturesEpoch" && n > 0:
		return "<offset>"
	}
	return fmt.Sprint(n)
}

// recent tells a time of this run.
func (p *printer) recent(ms int64) bool {
	return ms >= p.since.Add(-time.Minute).UnixMilli() && ms <= time.Now().Add(time.Minute).UnixMilli()
}

// records prints batches and messages as they lie in an answer.
func (p *printer) records(name string, raw []byte, indent string) {
	fmt.Fprintf(p.out, "%s%s: %d bytes\n", indent, name, len(raw))
	buf := new(batch.Buffers)
	for len(raw) > 0 {
		e, rest, err := batch.NextEntry(raw)
		if err != nil {
			fmt.Fprintf(p.out, "%s  and %d bytes that are no whole entry\n", indent, len(raw))
			return
		}
		raw = rest
		if b, ok := e.Batch(); ok {
			fmt.Fprintf(p.out, "%s  batch %d–%d %s time=%s max=%s crc=%t epoch=%d producer=%s/%d/%d txn=%t control=%t count=%d\n", indent, b.BaseOffset(), b.LastOffset(), b.Codec(),
				b.TimestampType(), p.number("", b.MaxTimestamp()), b.CheckCRC(), b.LeaderEpoch(), p.number("ProducerID", b.ProducerID()), b.ProducerEpoch(), b.BaseSequence(), b.IsTransactional(), b.IsControl(), b.Count())
		} else {
			fmt.Fprintf(p.out, "%s  message magic %d last %d %s time=%s crc=%t\n", indent, e.Magic(), e.LastOffset(), e.Codec(), e.TimestampType(), e.CheckCRC())
		}
		for r, err := range e.Records(buf) {
			if err != nil {
				fmt.Fprintf(p.out, "%s    unreadable: %v\n", indent, err)
				break
			}
			fmt.Fprintf(p.out, "%s    %d at %s key=%s value=%s", indent, r.Offset, p.number("", r.Timestamp), p.value(r.Key), p.value(r.Value))
			for _, h := range r.Headers {
				fmt.Fprintf(p.out, " %q:%s", h.Key, p.value(h.Value))
			}
			fmt.Fprintln(p.out)
		}
	}
}

func (p *printer) value(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case len(b) > 40:
		return fmt.Sprintf("%q…(%d)", b[:8], len(b))
	}
	return fmt.Sprintf("%q", b)
}
