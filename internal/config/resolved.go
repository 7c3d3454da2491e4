package config

import "sync"

// resolved holds the checked value of every broker key, defaults included. The getters are map lookups; asking for a
// key that is not in the table, or for another type than the key has, is a bug and panics.
type resolved struct {
	values map[string]value
}

// resolve parses what set says about each key; a value that does not parse counts as not set (it was refused before).
func resolve(set func(key string) (string, bool)) resolved {
	keys := Keys(ScopeBroker)
	r := resolved{values: make(map[string]value, len(keys))}
	for _, k := range keys {
		v := k.defaultValue()
		if raw, ok := set(k.Name); ok {
			if parsed, f := k.parse(raw); f == nil || f.repeated != "" {
				v = parsed
			}
		}
		r.values[k.Name] = v
	}
	return r
}

// builtIn is what counts when nothing is set.
var builtIn = sync.OnceValue(func() resolved {
	return resolve(func(string) (string, bool) { return "", false })
})

func (r resolved) get(key string, types ...Type) value {
	k, ok := Lookup(ScopeBroker, key)
	if !ok {
		panic("BUG: no broker key " + key)
	}
	for _, t := range types {
		if k.Type == t {
			return r.values[key]
		}
	}
	panic("BUG: " + key + " is of type " + k.Type.String())
}

// Int returns the value of an INT or SHORT key; 0 when it is null.
func (r resolved) Int(key string) int32 { return int32(r.get(key, TypeInt, TypeShort).n) }

// Long returns the value of a LONG, INT or SHORT key; 0 when it is null.
func (r resolved) Long(key string) int64 { return r.get(key, TypeLong, TypeInt, TypeShort).n }

// Double returns the value of a DOUBLE key.
func (r resolved) Double(key string) float64 { return r.get(key, TypeDouble).f }

// Bool returns the value of a BOOLEAN key.
func (r resolved) Bool(key string) bool { return r.get(key, TypeBoolean).b }

// String returns the value of a STRING, CLASS or PASSWORD key; "" when it is null.
func (r resolved) String(key string) string {
	return r.get(key, TypeString, TypeClass, TypePassword).text
}

// List returns the entries of a LIST key; nil when it is empty or null. The caller must not modify them.
func (r resolved) List(key string) []string { return r.get(key, TypeList).list }

// Null tells whether the key has neither a value nor a default.
func (r resolved) Null(key string) bool { return r.values[key].null }
