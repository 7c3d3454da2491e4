package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// value is a parsed and checked value of one key. Which field counts follows from the type of the key; null counts for all.
type value struct {
	null bool
	b    bool
	n    int64
	f    float64
	list []string
	text string // what Kafka returns in DescribeConfigs: trimmed, numbers and lists rewritten
}

// fault says what is wrong with a value, once as Kafka says it to a client and once for the reader of a file.
type fault struct {
	kafka  string // the whole message of Kafka's ConfigException
	reason string
	// repeated is no error: the list named this entry more than once, and the parsed value holds it once.
	repeated string
}

// invalid is the common form of Kafka's ConfigException.
func invalid(k *Key, shown, message, reason string) *fault {
	return &fault{kafka: "Invalid value " + shown + " for configuration " + k.Name + ": " + message, reason: reason}
}

// parse reads and checks raw as a value of k, in the order and with the words of ConfigDef.parse.
func (k *Key) parse(raw string) (value, *fault) {
	v, f := k.parseType(raw)
	if f != nil && f.repeated == "" {
		return value{}, f
	}
	if bad := k.check.apply(k, &v); bad != nil {
		return value{}, bad
	}
	return v, f
}

func (k *Key) parseType(raw string) (value, *fault) {
	trimmed := strings.TrimFunc(raw, func(r rune) bool { return r <= ' ' }) // Java's String.trim
	v := value{text: trimmed}
	switch k.Type {
	case TypeBoolean:
		switch {
		case strings.EqualFold(trimmed, "true"):
			v.b = true
		case !strings.EqualFold(trimmed, "false"):
			return v, invalid(k, raw, "Expected value to be either true or false", "neither true nor false (BOOLEAN)")
		}
		v.text = strconv.FormatBool(v.b)
	case TypeInt, TypeShort, TypeLong:
		n, err := strconv.ParseInt(trimmed, 10, k.Type.bits())
		if err != nil {
			return v, notANumber(k, raw)
		}
		v.n, v.text = n, strconv.FormatInt(n, 10)
	case TypeDouble:
		f, ok := parseJavaDouble(trimmed)
		if !ok {
			return v, notANumber(k, raw)
		}
		v.f, v.text = f, formatJavaDouble(f)
	case TypeList:
		var repeated string
		v.list = splitList(trimmed)
		if k.check.unique {
			v.list, repeated = distinct(v.list)
		}
		v.text = strings.Join(v.list, ",")
		if repeated != "" {
			return v, &fault{repeated: repeated}
		}
	case TypeString, TypeClass, TypePassword:
	}
	return v, nil
}

func notANumber(k *Key, raw string) *fault {
	return invalid(k, raw, "Not a number of type "+k.Type.String(), "not a number ("+k.Type.String()+")")
}

func (t Type) bits() int {
	switch t {
	case TypeShort:
		return 16
	case TypeInt:
		return 32
	}
	return 64
}

// splitList splits as Kafka does: at commas, with the white space around them; the empty text is the empty list.
func splitList(s string) []string {
	s = strings.TrimSpace(s)
	if s == "" {
		return nil
	}
	items := strings.Split(s, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}

// distinct drops later repetitions in place and returns one of the repeated items.
func distinct(items []string) (kept []string, repeated string) {
	kept = items[:0]
	for _, it := range items {
		if slices.Contains(kept, it) {
			repeated = it
			continue
		}
		kept = append(kept, it)
	}
	return kept, repeated
}

// parseJavaDouble accepts what Double.parseDouble accepts, hexadecimal floats aside.
func parseJavaDouble(s string) (float64, bool) {
	switch s {
	case "NaN", "+NaN", "-NaN":
		return math.NaN(), true
	case "Infinity", "+Infinity":
		return math.Inf(1), true
	case "-Infinity":
		return math.Inf(-1), true
	}
	if n := len(s); n > 1 && strings.ContainsRune("fFdD", rune(s[n-1])) {
		s = s[:n-1]
	}
	if strings.Trim(s, "0123456789+-.eE") != "" {
		return 0, false // ParseFloat also takes "inf", "nan", "1_0" and hexadecimal
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) { // too large is infinity for Java, not an error
		return 0, false
	}
	return f, true
}

// formatJavaDouble writes f as Double.toString does.
func formatJavaDouble(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	if a := math.Abs(f); a == 0 || (a >= 1e-3 && a < 1e7) {
		s := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	mantissa, exp, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	n, err := strconv.Atoi(exp)
	if err != nil {
		return mantissa // not reached: FormatFloat always writes a numeric exponent
	}
	return fmt.Sprintf("%sE%d", mantissa, n)
}

// nullValue is what a key without a value holds.
func nullValue() value { return value{null: true} }

// defaultValue is the parsed default of k.
func (k *Key) defaultValue() value {
	if k.Default == nil {
		return nullValue()
	}
	v, f := k.parseType(*k.Default)
	if f != nil && f.repeated == "" {
		panic("BUG: keys.tsv: " + f.kafka)
	}
	return v
}
