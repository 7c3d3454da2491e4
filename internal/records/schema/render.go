package schema

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Render writes one version of m the way Apache Kafka's own schema objects print themselves: snake_case names, the
// type as it is on the wire, tagged fields last. It is what the comparison with the real system compares.
func (m *Message) Render(version int16) string {
	var b strings.Builder
	fmt.Fprintf(&b, "v%d: struct\n", version)
	m.render(&b, m.Fields, version, "  ")
	return b.String()
}

func (m *Message) render(b *strings.Builder, fields []*Field, version int16, indent string) {
	flex := m.Flexible.Has(version)
	var tagged []*Field
	for _, f := range fields {
		switch {
		case !f.Versions.Has(version):
		case f.Tag >= 0:
			tagged = append(tagged, f)
		default:
			m.renderField(b, f, version, indent, indent)
		}
	}
	if !flex {
		return
	}
	fmt.Fprintf(b, "%sTAGS\n", indent)
	slices.SortFunc(tagged, func(x, y *Field) int { return x.Tag - y.Tag })
	for _, f := range tagged {
		m.renderField(b, f, version, fmt.Sprintf("%s  tag %d: ", indent, f.Tag), indent+"  ")
	}
}

func (m *Message) renderField(b *strings.Builder, f *Field, version int16, head, indent string) {
	fmt.Fprintf(b, "%s%s ", head, snake(f.Name))
	flex := m.Flexible.Has(version)
	compact := ""
	if flex {
		compact = "COMPACT_"
	}
	nullable := f.Nullable
	if f.Array {
		b.WriteString(compact + "ARRAY")
		if nullable {
			b.WriteString("?")
		}
		b.WriteString(" of ")
		nullable = false
	}
	if f.IsStruct() {
		b.WriteString("struct\n")
		m.render(b, m.StructFields(f), version, indent+"  ")
		return
	}
	switch kind := f.Kind; kind {
	case "string", "bytes":
		b.WriteString(compact)
		if nullable {
			b.WriteString("NULLABLE_")
		}
		b.WriteString(strings.ToUpper(kind))
	case "bool":
		b.WriteString("BOOLEAN")
	default:
		b.WriteString(strings.ToUpper(kind))
	}
	b.WriteString("\n")
}

func snake(name string) string {
	var b strings.Builder
	for _, r := range name {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
