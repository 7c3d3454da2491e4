package main

import (
	"strings"
	"unicode"
)

// goName turns a schema name (topicId, lastKnownElr) into Go's (TopicID, LastKnownELR).
func goName(name string) string {
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
			words[i] = upper(w)
		}
	}
	return strings.Join(words, "")
}

// singular names one element of the array called name.
func singular(name string) string {
	switch {
	case strings.HasSuffix(name, "ies"):
		return strings.TrimSuffix(name, "ies") + "y"
	case strings.HasSuffix(name, "ches"):
		return strings.TrimSuffix(name, "es")
	}
	return strings.TrimSuffix(name, "s")
}
