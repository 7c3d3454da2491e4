package config

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
)

//go:embed keys.tsv
var keysText string

// table is the parsed keys.tsv.
type table struct {
	byName map[Scope]map[string]*Key
	sorted map[Scope][]*Key
}

// loadTable parses the embedded table once. The table is part of the program, so a mistake in it is a bug.
var loadTable = sync.OnceValue(func() *table {
	t, err := parseTable(keysText)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return t
})

// Lookup finds a key of the given scope. It does not know listener-prefixed names: see BaseKey.
func Lookup(scope Scope, name string) (*Key, bool) {
	k, ok := loadTable().byName[scope][name]
	return k, ok
}

// Keys returns all keys of the scope, ordered by name. The caller must not modify the slice.
func Keys(scope Scope) []*Key { return loadTable().sorted[scope] }

// BaseKey finds the broker key behind a name of server.properties or of a dynamic broker config: the key itself, or
// for listener.name.<listener>.<key> the key that is set for that listener alone.
func BaseKey(name string) (k *Key, listener string, ok bool) {
	if k, ok := Lookup(ScopeBroker, name); ok {
		return k, "", true
	}
	rest, ok := strings.CutPrefix(name, listenerPrefix)
	if !ok {
		return nil, "", false
	}
	listener, base, ok := strings.Cut(rest, ".")
	if !ok {
		return nil, "", false
	}
	for _, m := range listenerMechanismKeys {
		// Written listener.name.<listener>.<mechanism>.<key>.
		if strings.HasSuffix(base, m) {
			base = m
			break
		}
	}
	k, ok = Lookup(ScopeBroker, base)
	return k, listener, ok
}

const listenerPrefix = "listener.name."

// listenerMechanismKeys may carry a SASL mechanism between the listener's name and the key.
var listenerMechanismKeys = [...]string{
	"sasl.jaas.config", "sasl.login.class", "sasl.login.callback.handler.class", "sasl.server.callback.handler.class",
	"connections.max.reauth.ms",
}

func parseTable(text string) (*table, error) {
	t := &table{byName: map[Scope]map[string]*Key{}, sorted: map[Scope][]*Key{}}
	honoured, byDesign := honouredKeys(), noEffectKeys()
	var scope Scope
	for i, line := range strings.Split(text, "\n") {
		switch {
		case line == "## broker":
			scope = ScopeBroker
		case line == "## topic":
			scope = ScopeTopic
		case line == "## group":
			scope = ScopeGroup
		case line == "## client metrics":
			scope = ScopeClientMetrics
		case line == "" || line[0] == '#':
		default:
			k, err := parseKey(scope, line)
			if err != nil {
				return nil, fmt.Errorf("keys.tsv:%d: %w", i+1, err)
			}
			k.Honoured = honoured[scopedName{k.Scope, k.Name}]
			k.ByDesign = byDesign[k.Name]
			if t.byName[scope] == nil {
				t.byName[scope] = map[string]*Key{}
			}
			if _, twice := t.byName[scope][k.Name]; twice {
				return nil, fmt.Errorf("keys.tsv:%d: %s stands twice", i+1, k.Name)
			}
			t.byName[scope][k.Name] = k
			t.sorted[scope] = append(t.sorted[scope], k)
		}
	}
	for _, keys := range t.sorted {
		slices.SortFunc(keys, func(a, b *Key) int { return strings.Compare(a.Name, b.Name) })
	}
	return t, nil
}

func parseKey(scope Scope, line string) (*Key, error) {
	f := strings.Split(line, "\t")
	if len(f) != 7 || scope == 0 {
		return nil, fmt.Errorf("%d columns, want 7 under a ## heading", len(f))
	}
	for i, s := range f {
		if s == "-" {
			f[i] = ""
		}
	}
	k := &Key{Name: f[0], Scope: scope, Valid: f[3], Doc: f[6]}
	for t := TypeBoolean; t <= TypePassword; t++ {
		if t.String() == f[1] {
			k.Type = t
		}
	}
	if k.Type == TypeUnknown {
		return nil, fmt.Errorf("%s: unknown type %q", k.Name, f[1])
	}
	k.Sensitive = k.Type == TypePassword
	switch f[2] {
	case "null":
	case "(required)":
		k.Required = true
	case `""`:
		k.Default = new(string)
	default:
		k.Default = &f[2]
	}
	switch f[4] {
	case "read-only":
	case "per-broker":
		k.Update, k.Dynamic = PerBroker, true
	case "cluster-wide":
		k.Update, k.Dynamic = ClusterWide, true
	case "dynamic":
		k.Dynamic = true
	default:
		return nil, fmt.Errorf("%s: unknown update mode %q", k.Name, f[4])
	}
	if err := k.parseFlags(f[5]); err != nil {
		return nil, err
	}
	k.Synonyms = synonymsOf(scope, k.Name)
	return k, k.parseValid()
}

func (k *Key) parseFlags(flags string) error {
	if flags == "" {
		return nil
	}
	for f := range strings.SplitSeq(flags, ",") {
		switch f {
		case "internal":
			k.Internal = true
		case "dynamic-only":
			k.DynamicOnly = true
		case "nonempty":
			k.check.nonEmpty = true
		case "unique":
			k.check.unique = true
		case "noblank":
			k.check.noBlank = true
		default:
			return fmt.Errorf("%s: unknown flag %q", k.Name, f)
		}
	}
	return nil
}
