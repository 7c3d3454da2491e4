package storage

import (
	"fmt"
	"slices"
	"strings"
)

// flag is an option of a command. Flags without a value are switches.
type flag struct {
	long, short string // --long, -s
	value       string // name of the value in help; "" for a switch
	required    bool
	group       string // flags of one group exclude each other
	help        string
}

func (f flag) name() string { return "--" + f.long + "/-" + f.short }

// parsed is what stood on the command line: all values of each flag by its long name; a switch has one empty value.
type parsed map[string][]string

func (p parsed) has(long string) bool { return len(p[long]) > 0 }

// last is the value that counts when a flag is given more than once, "" when it is not given.
func (p parsed) last(long string) string {
	if v := p[long]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

// usageError is a command line that cannot be understood; the usage is printed with it.
type usageError string

func (e usageError) Error() string { return string(e) }

// parse reads args as argparse does: --long value, --long=value, unambiguous beginnings of long names, -s value,
// -svalue, and switches run together (-gs).
func parse(flags []flag, args []string) (parsed, error) {
	out := parsed{}
	var order []flag
	for len(args) > 0 {
		arg := args[0]
		f, value, attached, err := find(flags, arg)
		if err != nil {
			return nil, err
		}
		args = args[1:]
		switch {
		case f.value == "" && attached && strings.HasPrefix(arg, "--"):
			return nil, usageError(fmt.Sprintf("argument %s: ignored explicit argument %s", f.name(), value))
		case f.value == "" && attached:
			args = append([]string{"-" + value}, args...)
			value = ""
		case f.value != "" && !attached:
			if len(args) == 0 || strings.HasPrefix(args[0], "-") && len(args[0]) > 1 {
				return nil, usageError(fmt.Sprintf("argument %s: expected one argument", f.name()))
			}
			value, args = args[0], args[1:]
		}
		for _, g := range order {
			if f.group != "" && g.group == f.group && g.long != f.long {
				return nil, usageError(fmt.Sprintf("argument %s: not allowed with argument %s", f.name(), g.name()))
			}
		}
		order = append(order, f)
		out[f.long] = append(out[f.long], value)
	}
	for _, f := range flags {
		if f.required && !out.has(f.long) {
			return nil, usageError(fmt.Sprintf("argument %s is required", f.name()))
		}
	}
	return out, nil
}

// find finds the flag that arg names, and the value attached to it.
func find(flags []flag, arg string) (f flag, value string, attached bool, err error) {
	unknown := usageError(fmt.Sprintf("unrecognized arguments: '%s'", arg))
	if long, ok := strings.CutPrefix(arg, "--"); ok {
		long, value, attached = strings.Cut(long, "=")
		var hits []flag
		for _, f := range flags {
			if f.long == long {
				return f, value, attached, nil
			}
			if long != "" && strings.HasPrefix(f.long, long) {
				hits = append(hits, f)
			}
		}
		switch len(hits) {
		case 0:
			return flag{}, "", false, unknown
		case 1:
			return hits[0], value, attached, nil
		}
		var names []string
		for _, h := range hits {
			names = append(names, "--"+h.long)
		}
		return flag{}, "", false, usageError(fmt.Sprintf("ambiguous option: --%s could match %s", long, strings.Join(names, ", ")))
	}
	short, ok := strings.CutPrefix(arg, "-")
	if !ok || short == "" {
		return flag{}, "", false, unknown
	}
	i := slices.IndexFunc(flags, func(f flag) bool { return f.short == short[:1] })
	if i < 0 {
		return flag{}, "", false, unknown
	}
	return flags[i], strings.TrimPrefix(short[1:], "="), len(short) > 1, nil
}

// usage is the short form of a command's flags.
func usage(prog string, flags []flag) string {
	var b strings.Builder
	b.WriteString("usage: " + prog + " [-h]")
	for i, f := range flags {
		text := "--" + f.long
		if f.value != "" {
			text += " " + f.value
		}
		next := i+1 < len(flags) && f.group != "" && flags[i+1].group == f.group
		first := f.group != "" && (i == 0 || flags[i-1].group != f.group)
		switch {
		case f.group != "" && first:
			b.WriteString(" [" + text)
		case f.group != "":
			b.WriteString(" | " + text)
		case f.required:
			b.WriteString(" " + text)
		default:
			b.WriteString(" [" + text + "]")
		}
		if f.group != "" && !next {
			b.WriteString("]")
		}
	}
	return b.String()
}
