package consumer

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"weir/internal/image"
	"weir/internal/records"
)

// regexPause is how long after one look at the regular expressions of a group
// there is no other (REGEX_BATCH_REFRESH_MIN_INTERVAL_MS).
const regexPause = 10 * time.Second

// regexChange says what became of a member's regular expression.
type regexChange uint8

const (
	regexSame regexChange = iota
	regexChanged
	regexResolved // changed, and its topics are known
)

// compile reads a regular expression that has to match the whole of a name. The
// syntax is RE2's, as Kafka's.
func compile(text string) (*regexp.Regexp, error) {
	if _, err := syntax.Parse(text, syntax.Perl); err != nil {
		return nil, err // its text names the fault as the client wrote it
	}
	return regexp.Compile(`\A(?:` + text + `)\z`)
}

// updateRegex looks at the regular expression of a changed member, and has those of
// the group resolved when that is due.
func (g *Group) updateRegex(s *Step, soft *Soft, c change) (regexChange, *Error) {
	old, now := c.was.regex(), c.is.regex()
	status, refresh := regexSame, false
	if !equal(c.was.Regex, c.is.Regex) {
		status = regexChanged
		if old != "" && g.patternCount(old) == 1 {
			s.write(Record{Kind: KindRegex, Group: g.ID, Of: old})
		}
		switch {
		case now != "" && g.patternCount(now) == 0:
			if _, err := compile(now); err != nil {
				return status, badRegex(now, err)
			}
			refresh = true
		case now != "" && g.resolved(now) != nil, now == "" && old != "":
			status = regexResolved
		}
	}
	if !refresh && size(g.patterns) == 0 || soft.resolving {
		return status, nil
	}
	patterns := g.patterns
	if old != "" {
		patterns = count(patterns, old, -1)
	}
	if now != "" {
		patterns = count(patterns, now, 1)
	}
	last := g.lastResolved()
	if last != nil && s.Now.UnixMilli() <= last.TimestampMs+regexPause.Milliseconds() {
		return status, nil
	}
	refresh = refresh || size(patterns) != size(g.regexes) || last == nil ||
		last.Version < s.NewTopicsAt || s.Now.UnixMilli() > last.TimestampMs+s.Config.RegexRefresh.Milliseconds()
	if refresh && size(patterns) > 0 {
		soft.resolving = true
		s.Resolve = &Resolve{Group: g.ID, Regexes: keys(patterns)}
	}
	return status, nil
}

// lastResolved is what was resolved last; all are resolved together. nil for nothing.
func (g *Group) lastResolved() *Resolved {
	for _, r := range all(g.regexes) {
		return r
	}
	return nil
}

func badRegex(text string, err error) *Error {
	why := err.Error()
	if e := new(syntax.Error); errors.As(err, &e) {
		why = string(e.Code)
	}
	return refuse(kerr.InvalidRegularExpression, "SubscribedTopicRegex `%s` is not a valid regular expression: %s.", text, why)
}

// ResolveIn looks up the topics of an image that match the regular expressions. It
// may take long; it uses nothing but its arguments.
func ResolveIn(img *image.Image, now time.Time, regexes []string) map[string]*Resolved {
	out := make(map[string]*Resolved, len(regexes))
	compiled := make(map[string]*regexp.Regexp, len(regexes))
	for _, text := range regexes {
		out[text] = &Resolved{Topics: []string{}, Version: img.Provenance.Offset, TimestampMs: now.UnixMilli()}
		// One that a record brought may not compile: it matches nothing.
		if re, err := compile(text); err == nil {
			compiled[text] = re
		}
	}
	for t := range img.Topics() {
		for text, re := range compiled {
			if re.MatchString(t.Name) {
				out[text].Topics = append(out[text].Topics, t.Name)
			}
		}
	}
	return out
}

// RegexResolved takes the topics of regular expressions, and bumps the group epoch
// when they are others than before.
func (g *Group) RegexResolved(s *Step, soft *Soft, found map[string]*Resolved) {
	names, bump := g.names, false
	texts := make([]string, 0, len(found))
	for text := range found {
		texts = append(texts, text)
	}
	slices.Sort(texts)
	for _, text := range texts {
		if g.patternCount(text) == 0 {
			continue // nobody uses it any more
		}
		var before []string
		if r := g.resolved(text); r != nil {
			before = r.Topics
		}
		now := found[text]
		if !sameNames(before, now.Topics) {
			bump = true
			for _, t := range before {
				names = addSubscribers(names, t, subscribers{byRegex: -1})
			}
			for _, t := range now.Topics {
				names = addSubscribers(names, t, subscribers{byRegex: 1})
			}
		}
		v := records.NewConsumerGroupRegularExpressionValue()
		v.Topics, v.Version, v.Timestamp = now.Topics, now.Version, now.TimestampMs
		s.write(Record{Kind: KindRegex, Group: g.ID, Of: text, Value: &v})
	}
	hash := metadataHash(s.Image, keys(names))
	if !bump && hash == g.MetadataHash {
		return
	}
	g.bump(s, g.Epoch+1, hash)
	s.Rebalances++
	soft.refreshed(s, g.Epoch+1)
}

// ResolveEnded notes that no regular expression of the group is being resolved.
func (f *Soft) ResolveEnded() { f.resolving = false }
