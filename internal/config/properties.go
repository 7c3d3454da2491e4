package config

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// setting is one key=value of a file or of an --override.
type setting struct {
	key, value string
	file       string // name of the file, or "--override"
	line       int    // of the key, from 1; for an override its number among the overrides
}

// parseProperties reads the text of a Java .properties file: Properties.load over UTF-8 (a byte sequence that is no
// UTF-8 is read as ISO 8859-1, which is what Java assumes; a byte order mark is skipped). It returns every setting in order, also repeated keys.
func parseProperties(file, text string) ([]setting, error) {
	if !utf8.ValidString(text) {
		text = fromLatin1(text)
	}
	var out []setting
	lines := splitLines(strings.TrimPrefix(text, "\ufeff"))
	for i := 0; i < len(lines); i++ {
		start := i + 1
		line := strings.TrimLeft(lines[i], " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		var b strings.Builder
		for endsInBackslash(line) {
			b.WriteString(line[:len(line)-1])
			line = ""
			if i+1 == len(lines) {
				break
			}
			i++
			line = strings.TrimLeft(lines[i], " \t\f")
		}
		b.WriteString(line)
		if strings.TrimSpace(b.String()) == "" {
			continue // a lone backslash, or one before an empty line
		}
		rawKey, rawValue := cutProperty(b.String())
		key, err := unescape(rawKey)
		if err == nil {
			var value string
			if value, err = unescape(rawValue); err == nil {
				out = append(out, setting{key: key, value: value, file: file, line: start})
				continue
			}
		}
		return nil, &Error{File: file, Line: start, Key: rawKey, Value: rawValue, Reason: err.Error()}
	}
	return out, nil
}

// splitLines cuts at \n, \r\n and \r, the three line ends of a properties file.
func splitLines(text string) []string {
	return strings.Split(strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n"), "\n")
}

// endsInBackslash tells whether the line goes on: it ends in an odd number of backslashes.
func endsInBackslash(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// cutProperty splits a logical line at the first unescaped '=', ':' or white space; white space and one '=' or ':'
// between key and value belong to neither.
func cutProperty(line string) (key, value string) {
	end := len(line)
	for i := 0; i < len(line); i++ {
		c := line[i]
		if c == '\\' {
			i++
			continue
		}
		if strings.IndexByte("=: \t\f", c) >= 0 {
			end = i
			break
		}
	}
	rest := strings.TrimLeft(line[end:], " \t\f")
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = strings.TrimLeft(rest[1:], " \t\f")
	}
	return line[:end], rest
}

// unescape resolves \t \n \r \f, \uXXXX (surrogate pairs too); a backslash before any other character means that character.
func unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var b strings.Builder
	var high rune // a high surrogate that waits for its low half
	flush := func() {
		if high != 0 {
			b.WriteRune(utf8.RuneError)
			high = 0
		}
	}
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			flush()
			b.WriteByte(s[i])
			continue
		}
		i++
		if s[i] != 'u' {
			flush()
			b.WriteByte(unescapeByte(s[i]))
			continue
		}
		if i+5 > len(s) {
			return "", fmt.Errorf(`\u must be followed by four hexadecimal digits`)
		}
		n, err := strconv.ParseUint(s[i+1:i+5], 16, 16)
		if err != nil {
			return "", fmt.Errorf(`\u%s: \u must be followed by four hexadecimal digits`, s[i+1:i+5])
		}
		i += 4
		r := rune(n)
		switch {
		case r >= 0xD800 && r < 0xDC00:
			flush()
			high = r
		case r >= 0xDC00 && r < 0xE000 && high != 0:
			b.WriteRune((high-0xD800)<<10 | (r - 0xDC00) + 0x10000)
			high = 0
		default:
			flush()
			b.WriteRune(r)
		}
	}
	flush()
	return b.String(), nil
}

func unescapeByte(c byte) byte {
	switch c {
	case 't':
		return '\t'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 'f':
		return '\f'
	}
	return c
}

func fromLatin1(s string) string {
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}
