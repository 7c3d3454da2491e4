package schema

import (
	"strings"
	"unicode"
)

// GoName turns the name of a field (topicId, lastKnownElr) into Go's (TopicID, LastKnownELR).
func GoName(name string) string {
	var words []string
	start := 0
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			words = append(words, name[start:i])
			start = i
		}
	}
	words = append(words, name[start:])
	for i, w := range words {
		switch w = strings.ToLower(w); w {
		case "id", "isr", "elr", "crc":
			words[i] = strings.ToUpper(w)
		case "ids":
			words[i] = "IDs"
		case "kraft":
			words[i] = "KRaft"
		default:
			words[i] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

// Singular names one element of the array called name.
func Singular(name string) string {
	switch {
	case strings.HasSuffix(name, "ies"):
		return strings.TrimSuffix(name, "ies") + "y"
	case strings.HasSuffix(name, "ches"):
		return strings.TrimSuffix(name, "es")
	}
	return strings.TrimSuffix(name, "s")
}
