package checkpoint

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// property is one value of a java.util.Properties text with the line on which it starts.
type property struct {
	value string
	line  int
}

type propertyError struct {
	line int
	err  error
}

func (e *propertyError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }

// parseProperties reads the text form of java.util.Properties: comments start with # or !, a backslash at the end
// joins lines, key and value are parted by '=', ':' or blanks, and \t \n \r \f \uXXXX \c are escapes. The last of
// several equal keys counts.
func parseProperties(text string) (map[string]property, error) {
	out := map[string]property{}
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		first := i + 1
		line := strings.TrimLeft(lines[i], " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		for endsInBackslash(line) && i+1 < len(lines) {
			i++
			line = line[:len(line)-1] + strings.TrimLeft(lines[i], " \t\f")
		}
		key, value := splitProperty(line)
		k, err := unescapeProperty(key)
		if err != nil {
			return nil, &propertyError{first, err}
		}
		v, err := unescapeProperty(value)
		if err != nil {
			return nil, &propertyError{first, err}
		}
		out[k] = property{v, first}
	}
	return out, nil
}

func endsInBackslash(line string) bool {
	n := len(line) - len(strings.TrimRight(line, `\`))
	return n%2 == 1
}

func splitProperty(line string) (key, value string) {
	i := 0
	for i < len(line) && !strings.ContainsRune("=: \t\f", rune(line[i])) {
		if line[i] == '\\' {
			i++
		}
		i++
	}
	i = min(i, len(line))
	key, rest := line[:i], strings.TrimLeft(line[i:], " \t\f")
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = strings.TrimLeft(rest[1:], " \t\f")
	}
	return key, rest
}

func unescapeProperty(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			if s[i] != '\\' {
				b.WriteByte(s[i])
			}
			continue
		}
		i++
		switch s[i] {
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			if i+5 > len(s) {
				return "", fmt.Errorf(`a \u escape is cut in %s`, excerpt(s))
			}
			n, err := strconv.ParseUint(s[i+1:i+5], 16, 16)
			if err != nil {
				return "", fmt.Errorf(`a bad \u escape in %s`, excerpt(s))
			}
			b.WriteRune(rune(n))
			i += 4
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), nil
}

// escapeProperty writes a value so that java.util.Properties reads it back.
func escapeProperty(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == ' ' && i == 0, r == '\\', r == '=', r == ':', r == '#', r == '!':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r > '~':
			if r > 0xffff {
				r = utf8.RuneError
			}
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
