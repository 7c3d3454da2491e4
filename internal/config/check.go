package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// check is what is demanded of a value beyond its type, parsed from the valid column and the list flags of the table.
type check struct {
	min, max          *float64 // bounds of DOUBLE
	minInt, maxInt    *int64   // bounds of INT, SHORT, LONG
	orMinusOne        bool     // compression.gzip.level: in the bounds, or -1
	oneOf             []string
	foldCase          bool // oneOf ignores the case
	nonEmptyText      bool
	nonEmpty          bool // list with at least one entry
	unique            bool // list whose repeated entries count once
	noBlank           bool // list without empty entries
	throttled         bool // list of partition:broker, or *
	voters, hostPorts bool
	resetStrategy     bool
}

// parseValid understands the valid column.
func (k *Key) parseValid() error {
	v, c := k.Valid, &k.check
	switch {
	case v == "" || v == "non-null string": // a set value is never null
		return nil
	case v == "non-empty string":
		c.nonEmptyText = true
		return nil
	case k.Name == "controller.quorum.voters":
		c.voters = true
		return nil
	case k.Name == "controller.quorum.bootstrap.servers":
		c.hostPorts = true
		return nil
	case strings.HasPrefix(v, "[partitionId]:"):
		c.throttled = true
		return nil
	case strings.Contains(v, "by_duration:"):
		c.resetStrategy = true
		return nil
	}
	v, c.foldCase = strings.CutPrefix(v, "(case insensitive) ")
	v, c.orMinusOne = strings.CutSuffix(v, " or -1")
	inner, ok := strings.CutPrefix(v, "[")
	inner, ok2 := strings.CutSuffix(inner, "]")
	if !ok || !ok2 {
		return fmt.Errorf("%s: valid values %q are not understood", k.Name, k.Valid)
	}
	low, high, isRange := strings.Cut(inner, ",...")
	if !isRange {
		c.oneOf = strings.Split(inner, ", ")
		return nil
	}
	return c.parseRange(k, low, strings.TrimPrefix(high, ","))
}

func (c *check) parseRange(k *Key, low, high string) error {
	for _, b := range []struct {
		text string
		i    **int64
		f    **float64
	}{{low, &c.minInt, &c.min}, {high, &c.maxInt, &c.max}} {
		if b.text == "" {
			continue
		}
		f, err := strconv.ParseFloat(b.text, 64)
		if err != nil {
			return fmt.Errorf("%s: bound %q: %w", k.Name, b.text, err)
		}
		if k.Type == TypeDouble {
			*b.f = &f
			continue
		}
		n, err := strconv.ParseInt(b.text, 10, 64)
		if err != nil {
			return fmt.Errorf("%s: bound %q: %w", k.Name, b.text, err)
		}
		*b.i = &n
	}
	return nil
}

// apply checks a value of the right type. The messages are those of Kafka's validators.
func (c *check) apply(k *Key, v *value) *fault {
	if f := c.applyRange(k, v); f != nil {
		return f
	}
	if k.Type == TypeList {
		return c.applyList(k, v)
	}
	switch {
	case c.nonEmptyText && v.text == "":
		return invalid(k, v.text, "String must be non-empty", "empty")
	case c.resetStrategy && !validResetStrategy(v.text):
		return invalid(k, v.text, fmt.Sprintf("Invalid value `%s` for configuration %s. The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.", v.text, k.Name),
			"neither earliest nor latest nor by_duration:<ISO-8601 duration>")
	case c.oneOf != nil && !c.contains(v.text):
		return c.notOneOf(k, v.text)
	}
	return nil
}

func (c *check) applyRange(k *Key, v *value) *fault {
	if c.orMinusOne {
		if v.n != -1 && (v.n < *c.minInt || v.n > *c.maxInt) {
			m := fmt.Sprintf("Value must be between %d and %d or equal to -1", *c.minInt, *c.maxInt)
			return invalid(k, v.text, m, lowerFirst(m))
		}
		return nil
	}
	var bound, side string
	switch {
	case c.minInt != nil && v.n < *c.minInt:
		bound, side = strconv.FormatInt(*c.minInt, 10), "at least "
	case c.maxInt != nil && v.n > *c.maxInt:
		bound, side = strconv.FormatInt(*c.maxInt, 10), "no more than "
	case c.min != nil && v.f < *c.min:
		bound, side = strconv.FormatFloat(*c.min, 'f', -1, 64), "at least "
	case c.max != nil && v.f > *c.max:
		bound, side = strconv.FormatFloat(*c.max, 'f', -1, 64), "no more than "
	default:
		return nil
	}
	return invalid(k, v.text, "Value must be "+side+bound, "must be "+side+bound)
}

func (c *check) contains(s string) bool {
	for _, o := range c.oneOf {
		if s == o || c.foldCase && strings.EqualFold(s, o) {
			return true
		}
	}
	return false
}

func (c *check) notOneOf(k *Key, s string) *fault {
	how := "String must be one of: "
	if c.foldCase {
		how = "String must be one of (case insensitive): "
	}
	return invalid(k, s, how+strings.Join(c.oneOf, ", "), fmt.Sprintf("%q is not allowed", s))
}

func (c *check) applyList(k *Key, v *value) *fault {
	switch {
	case c.nonEmpty && len(v.list) == 0:
		valid := "any non-empty value"
		if c.oneOf != nil {
			valid = "[" + strings.Join(c.oneOf, ", ") + "]"
		}
		return &fault{kafka: "Configuration '" + k.Name + "' must not be empty. Valid values include: " + valid, reason: "empty"}
	case c.throttled:
		return checkThrottled(k, v)
	case c.voters:
		if _, err := parseVoters(v.list); err != nil {
			return &fault{kafka: err.Error(), reason: lowerFirst(err.Error())}
		}
	case c.hostPorts:
		if _, err := parseBootstrap(v.list); err != nil {
			return &fault{kafka: err.Error(), reason: lowerFirst(err.Error())}
		}
	}
	for _, it := range v.list {
		if c.noBlank && it == "" {
			return &fault{kafka: "Configuration '" + k.Name + "' values must not be empty.", reason: "an entry of the list is empty"}
		}
		if c.oneOf != nil && !c.contains(it) {
			return c.notOneOf(k, it)
		}
	}
	return nil
}

// checkThrottled accepts the empty list, * and partition:broker pairs (Kafka's ThrottledReplicaListValidator).
func checkThrottled(k *Key, v *value) *fault {
	if len(v.list) == 1 && v.list[0] == "*" {
		return nil
	}
	for _, it := range v.list {
		p, b, ok := strings.Cut(it, ":")
		if !ok || !digits(p) || !digits(b) {
			shown := "[" + strings.Join(v.list, ", ") + "]"
			m := "must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
			return invalid(k, shown, k.Name+" "+m, m)
		}
	}
	return nil
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func validResetStrategy(s string) bool {
	if s == "latest" || s == "earliest" {
		return true
	}
	d, ok := strings.CutPrefix(s, "by_duration:")
	if !ok {
		return false
	}
	age, ok := ParseISODuration(d)
	return ok && age >= 0
}

// ParseISODuration reads a duration as Java's Duration.parse does: PnDTnHnMn.nS, each part signed if need be. It
// reports false for anything else and for what does not fit a time.Duration (292 years).
func ParseISODuration(s string) (time.Duration, bool) {
	m := regexp.MustCompile(`(?i)^([-+]?)P(?:([-+]?[0-9]+)D)?(T(?:([-+]?[0-9]+)H)?(?:([-+]?[0-9]+)M)?(?:([-+]?[0-9]+(?:\.[0-9]{0,9})?)S)?)?$`).FindStringSubmatch(s)
	if m == nil || strings.EqualFold(m[3], "T") || m[2]+m[4]+m[5]+m[6] == "" {
		return 0, false
	}
	var seconds float64
	for _, part := range []struct {
		number string
		unit   float64
	}{{m[2], 86400}, {m[4], 3600}, {m[5], 60}, {m[6], 1}} {
		if part.number == "" {
			continue
		}
		n, err := strconv.ParseFloat(part.number, 64)
		if err != nil {
			return 0, false
		}
		seconds += n * part.unit
	}
	if seconds > 9.2e9 || seconds < -9.2e9 {
		return 0, false
	}
	if m[1] == "-" {
		seconds = -seconds
	}
	return time.Duration(seconds * float64(time.Second)), true
}

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}
