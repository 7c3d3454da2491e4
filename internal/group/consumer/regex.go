package consumer

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"weir/internal/image"
	"weir/internal/records"
)

// regexPause is how long after one look at the regular expressions of a group
// there is no other.
const regexPause = 10 * time.Second

// regexChange says what became of a member's regular expression.
type regexChange uint8

const (
	regexSame regexChange = iota
	regexChanged
	regexResolved // changed, and its topics are known
)

// What a client's regular expression may take of memory, which Kafka does not bound.
// A class of characters takes up to 1700 times its text when it is read, so that the
// longest text takes some 30 MB for a moment; that many names of topics at full
// length still fit into it: 65. A repetition takes as much as its copies.
const (
	regexLimit = 16 << 10 // bytes of the text
	costLimit  = 1 << 18  // instructions and characters of it, compiled
)

var errLongRegex = fmt.Errorf("it is longer than %d bytes", regexLimit)

// compile reads a regular expression that has to match the whole of a name. The
// syntax is RE2's, as Kafka's.
func compile(text string) (*regexp.Regexp, error) {
	if len(text) > regexLimit {
		return nil, errLongRegex
	}
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err // its text names the fault as the client wrote it
	}
	if cost(re) > costLimit {
		return nil, &syntax.Error{Code: syntax.ErrLarge, Expr: text}
	}
	return regexp.Compile(`\A(?:` + text + `)\z`)
}

// cost is about how many instructions and characters a regular expression is
// compiled to, at most one more than costLimit. The parser bounds its height.
func cost(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		n = min(n+cost(sub), costLimit+1)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min+1, re.Max) // the parser allows 1000 copies
	}
	return min(n, costLimit+1)
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
	patterns := g.patternsAfter(c)
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
	if errors.Is(err, errLongRegex) { // too long to be told again
		return refuse(kerr.InvalidRegularExpression, "SubscribedTopicRegex is not a valid regular expression: %v.", err)
	}
	why := err.Error()
	if e := new(syntax.Error); errors.As(err, &e) {
		why = string(e.Code)
	}
	return refuse(kerr.InvalidRegularExpression, "SubscribedTopicRegex `%s` is not a valid regular expression: %s.", text, why)
}

// ResolveIn looks up the topics of an image that match the regular expressions. It
// may take long; it uses nothing but its arguments, and holds one of them compiled
// at a time.
func ResolveIn(img *image.Image, now time.Time, regexes []string) map[string]*Resolved {
	out := make(map[string]*Resolved, len(regexes))
	for _, text := range regexes {
		r := &Resolved{Topics: []string{}, Version: img.Provenance.Offset, TimestampMs: now.UnixMilli()}
		out[text] = r
		re, err := compile(text)
		if err != nil {
			continue // one that a record brought may not compile: it matches nothing
		}
		for t := range img.Topics() {
			if re.MatchString(t.Name) {
				r.Topics = append(r.Topics, t.Name)
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
