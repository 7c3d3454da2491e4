// Package schema reads the texts that describe every message which Kafka persists or replicates. One text holds the
// messages of one place (metadata.txt, group.txt, …). They are the source of the Go code in package records:
//
//	# A topic exists. Its partitions follow as PartitionRecords.
//	TopicRecord apiKey=2 versions=0 flexible=0+
//	  name    string 0+
//	  topicId uuid   0+
//
// The comment becomes the doc of the Go type. The head line gives the name, the type id (apiKey) where the message has
// one, the versions that exist, and from which version on the encoding is flexible (compact lengths and tagged fields,
// KIP-482). Each field is one line: its name, its type, the versions that have it, then options:
//
//	tag=N       a tagged field; written only when it differs from its default
//	default=V   the value that a new message starts with and that stands for an absent field (otherwise 0, "", null)
//	ignorable   the value is dropped when a version without the field is written; without this word that is a bug
//	# text      becomes the doc of the Go field
//
// Types are bool, int8, int16, int32, int64, uint16, uint32, float64, string, bytes, uuid, struct (its fields stand
// below, deeper), the name of a struct that stands at the end of the message as "struct Name", and [] of each. A '?'
// behind the type marks a field that may be null.
package schema

import (
	"bufio"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

//go:embed *.txt
var texts embed.FS

// Texts returns the schema texts of package records.
func Texts() fs.FS { return texts }

// Range is a range of versions, both ends included. It is empty when Min > Max.
type Range struct{ Min, Max int16 }

// Open is the upper end of a range written as "N+".
const Open = int16(1<<15 - 1)

// Has tells whether v lies in the range.
func (r Range) Has(v int16) bool { return r.Min <= v && v <= r.Max }

// Message is one versioned message.
type Message struct {
	Name     string
	About    string
	File     string // the text's name without ".txt"
	APIKey   int    // the record's type id; -1 when it has none
	Versions Range
	Flexible Range // versions with compact lengths and tagged fields
	Fields   []*Field
	Structs  []*Struct // named structs, used by more than one field or kept apart for reading
}

// Struct is a named struct of a message.
type Struct struct {
	Name   string
	Fields []*Field
}

// Field is one field of a message or struct.
type Field struct {
	Name      string
	About     string
	Kind      string // element type: a primitive's name, "struct", or the name of one of the message's Structs
	Array     bool
	Nullable  bool
	Versions  Range
	Tag       int // -1 for a field without a tag
	Default   string
	Ignorable bool
	Fields    []*Field // of an inline struct
}

// Primitive lists the primitive types with the fewest bytes that each takes on the wire.
func Primitive(kind string) (minBytes int, ok bool) {
	switch kind {
	case "bool", "int8", "string", "bytes":
		return 1, true
	case "int16", "uint16":
		return 2, true
	case "int32", "uint32":
		return 4, true
	case "int64", "float64":
		return 8, true
	case "uuid":
		return 16, true
	}
	return 0, false
}

// IsStruct tells whether the field, or each element of it, is a struct.
func (f *Field) IsStruct() bool {
	_, primitive := Primitive(f.Kind)
	return !primitive
}

// StructFields returns the fields of f's struct in m.
func (m *Message) StructFields(f *Field) []*Field {
	if f.Kind == "struct" {
		return f.Fields
	}
	for _, s := range m.Structs {
		if s.Name == f.Kind {
			return s.Fields
		}
	}
	return nil
}

// Load parses every *.txt of fsys. Messages come in the order of the file names, then of the lines.
func Load(fsys fs.FS) ([]*Message, error) {
	names, err := fs.Glob(fsys, "*.txt")
	if err != nil {
		return nil, err
	}
	var all []*Message
	for _, name := range names {
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		ms, err := Parse(name, string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, ms...)
	}
	return all, nil
}

// Parse reads one text. Errors start with name and line.
func Parse(name, text string) ([]*Message, error) {
	p := parser{file: strings.TrimSuffix(path.Base(name), ".txt")}
	sc := bufio.NewScanner(strings.NewReader(text))
	for n := 1; sc.Scan(); n++ {
		if err := p.line(sc.Text()); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, m := range p.messages {
		if err := m.check(); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, m.Name, err)
		}
	}
	return p.messages, nil
}

type parser struct {
	file     string
	messages []*Message
	about    []string
	open     []level // where a deeper line belongs, outermost first
}

type level struct {
	indent int
	fields *[]*Field
}

func (p *parser) line(line string) error {
	body := strings.TrimLeft(line, " ")
	indent := len(line) - len(body)
	switch {
	case body == "":
		p.about = nil
		return nil
	case strings.HasPrefix(body, "##"):
		return nil
	case strings.HasPrefix(body, "#"):
		p.about = append(p.about, strings.TrimSpace(body[1:]))
		return nil
	case indent == 0:
		m, err := parseHead(body)
		if err != nil {
			return err
		}
		m.File, m.About = p.file, strings.Join(p.about, " ")
		p.about = nil
		p.messages = append(p.messages, m)
		p.open = []level{{2, &m.Fields}}
		return nil
	}
	for len(p.open) > 0 && p.open[len(p.open)-1].indent > indent {
		p.open = p.open[:len(p.open)-1]
	}
	if len(p.open) == 0 || p.open[len(p.open)-1].indent != indent {
		return fmt.Errorf("indented by %d blanks, which fits no message or struct above", indent)
	}
	if name, ok := strings.CutPrefix(body, "struct "); ok && indent == 2 {
		m := p.messages[len(p.messages)-1]
		s := &Struct{Name: strings.TrimSpace(name)}
		m.Structs = append(m.Structs, s)
		p.open = append(p.open, level{4, &s.Fields})
		return nil
	}
	f, err := parseField(body)
	if err != nil {
		return err
	}
	into := p.open[len(p.open)-1].fields
	*into = append(*into, f)
	if f.Kind == "struct" {
		p.open = append(p.open, level{indent + 2, &f.Fields})
	}
	return nil
}

func parseHead(line string) (*Message, error) {
	words := strings.Fields(line)
	m := &Message{Name: words[0], APIKey: -1, Versions: Range{0, -1}}
	for _, w := range words[1:] {
		key, val, _ := strings.Cut(w, "=")
		var err error
		switch key {
		case "apiKey":
			m.APIKey, err = strconv.Atoi(val)
		case "versions":
			m.Versions, err = parseRange(val)
		case "flexible":
			m.Flexible, err = parseRange(val)
		default:
			err = fmt.Errorf("unknown word %q", w)
		}
		if err != nil {
			return nil, err
		}
	}
	if m.Versions.Min > m.Versions.Max || m.Versions.Max == Open {
		return nil, fmt.Errorf("message %s needs versions=N or versions=N-M", m.Name)
	}
	return m, nil
}

func parseField(line string) (*Field, error) {
	line, about, _ := strings.Cut(line, "#")
	words := strings.Fields(line)
	if len(words) < 3 {
		return nil, fmt.Errorf("a field needs name, type and versions: %q", line)
	}
	f := &Field{Name: words[0], About: strings.TrimSpace(about), Tag: -1}
	f.Kind, f.Array = strings.CutPrefix(words[1], "[]")
	f.Kind, f.Nullable = strings.CutSuffix(f.Kind, "?")
	var err error
	if f.Versions, err = parseRange(words[2]); err != nil {
		return nil, err
	}
	for _, w := range words[3:] {
		key, val, _ := strings.Cut(w, "=")
		switch key {
		case "tag":
			if f.Tag, err = strconv.Atoi(val); err != nil {
				return nil, err
			}
		case "default":
			f.Default = val
		case "ignorable":
			f.Ignorable = true
		default:
			return nil, fmt.Errorf("unknown word %q", w)
		}
	}
	return f, nil
}

// parseRange reads "3", "0-2", "1+" or "none".
func parseRange(s string) (Range, error) {
	if s == "none" {
		return Range{0, -1}, nil
	}
	lo, hi, dash := strings.Cut(s, "-")
	lo, plus := strings.CutSuffix(lo, "+")
	a, err := strconv.ParseInt(lo, 10, 16)
	if err != nil {
		return Range{}, fmt.Errorf("bad version range %q", s)
	}
	r := Range{int16(a), int16(a)}
	switch {
	case plus:
		r.Max = Open
	case dash:
		b, err := strconv.ParseInt(hi, 10, 16)
		if err != nil || b < a {
			return Range{}, fmt.Errorf("bad version range %q", s)
		}
		r.Max = int16(b)
	}
	return r, nil
}

// check finds what a line alone does not show: unknown types, empty structs, tags used twice.
func (m *Message) check() error {
	if err := m.checkFields(m.Fields); err != nil {
		return err
	}
	for _, s := range m.Structs {
		if err := m.checkFields(s.Fields); err != nil {
			return err
		}
	}
	return nil
}

func (m *Message) checkFields(fields []*Field) error {
	var tags []int
	for _, f := range fields {
		if f.IsStruct() && len(m.StructFields(f)) == 0 {
			return fmt.Errorf("field %s: unknown type or empty struct %q", f.Name, f.Kind)
		}
		if f.Tag >= 0 {
			if slices.Contains(tags, f.Tag) {
				return fmt.Errorf("field %s: tag %d is taken", f.Name, f.Tag)
			}
			if f.Versions.Min < m.Flexible.Min {
				return fmt.Errorf("field %s: tagged in version %d, which is not flexible", f.Name, f.Versions.Min)
			}
			tags = append(tags, f.Tag)
		}
		if err := m.checkFields(f.Fields); err != nil {
			return err
		}
	}
	return nil
}
