// Package storage is the command kafka-storage: it formats log directories and tells about them.
//
//	weir storage format -c server.properties -t CLUSTER_ID [--standalone …]
//	weir storage info -c server.properties
//	weir storage random-uuid
//	weir storage version-mapping [-r RELEASE]
//	weir storage feature-dependencies -f FEATURE=LEVEL
//
// Flags, output and exit codes are those of Apache Kafka 4.3.1, with two differences: format finalizes only the features
// that Weir serves (see storage/format; --feature asks for others), and where Kafka ends with a stack trace this prints
// its message alone.
package storage

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/config"
	"weir/internal/image"
	"weir/internal/storage/format"
	"weir/internal/uuid"
	"weir/internal/vfs"
)

// Env is what the command works with.
type Env struct {
	Name   string // as it was called: "kafka-storage" or "weir storage"
	FS     vfs.FS
	Now    func() time.Time
	Rand   io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// command is one subcommand.
type command struct {
	name  string
	help  string
	flags []flag
	run   func(e *Env, p parsed) error
}

const configHelp = "the configuration file of the node"

func commands() []command {
	conf := flag{long: "config", short: "c", value: "CONFIG", required: true, help: configHelp}
	latest := format.LatestStable().Name
	release := flag{long: "release-version", short: "r", value: "RELEASE_VERSION",
		help: "the release whose features are meant, from 3.3-IV3 on; " + latest + " when not given"}
	const quorum = "quorum"
	return []command{
		{"info", "Tell about the log directories of this node.", []flag{conf}, (*Env).info},
		{"format", "Format the log directories of this node.", []flag{
			conf,
			{long: "cluster-id", short: "t", value: "CLUSTER_ID", required: true, help: "the id of the cluster; random-uuid makes one"},
			{long: "add-scram", short: "S", value: "ADD_SCRAM", help: "a SCRAM credential to start the cluster with, for example SCRAM-SHA-256=[name=alice,password=alice-secret]; may be repeated"},
			{long: "ignore-formatted", short: "g", help: "pass over directories that are formatted already"},
			release,
			{long: "feature", short: "f", value: "FEATURE", help: "a feature level to start the cluster with, for example kraft.version=1; may be repeated"},
			{long: "standalone", short: "s", group: quorum, help: "the cluster begins with this controller alone, and voters can be added later; controller.quorum.voters must not be set"},
			{long: "no-initial-controllers", short: "N", group: quorum, help: "this node joins a quorum whose voters can change"},
			{long: "initial-controllers", short: "I", value: "INITIAL_CONTROLLERS", group: quorum, help: "the cluster begins with these controllers: id@host:port:directory-id,… the same on every node"},
		}, (*Env).format},
		{"version-mapping", "List the feature levels that go with a release.", []flag{release}, (*Env).versionMapping},
		{"feature-dependencies", "List what feature levels depend on.", []flag{
			{long: "feature", short: "f", value: "FEATURE", required: true, help: "a feature level, for example metadata.version=5; may be repeated"},
		}, (*Env).featureDependencies},
		{"random-uuid", "Print a random id, for a cluster or a directory.", nil, (*Env).randomUUID},
	}
}

// errFailed is a failure whose text has been printed already.
var errFailed = errors.New("failed")

// Run executes the command line and returns the exit code.
func Run(e Env, args []string) int {
	all := commands()
	var names []string
	for _, c := range all {
		names = append(names, c.name)
	}
	top := fmt.Sprintf("usage: %s [-h] {%s} ...", e.Name, strings.Join(names, ","))
	switch {
	case len(args) == 0:
		return e.refuse(top, "too few arguments")
	case args[0] == "-h" || args[0] == "--help":
		e.help(top, all)
		return 0
	}
	i := slices.IndexFunc(all, func(c command) bool { return c.name == args[0] })
	if i < 0 {
		return e.refuse(top, fmt.Sprintf("invalid choice: '%s' (choose from '%s')", args[0], strings.Join(names, "', '")))
	}
	c := all[i]
	short := usage(e.Name+" "+c.name, c.flags)
	if slices.Contains(args[1:], "-h") || slices.Contains(args[1:], "--help") {
		e.helpFor(short, c)
		return 0
	}
	p, err := parse(c.flags, args[1:])
	if err == nil {
		err = c.run(&e, p)
	}
	var bad usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &bad):
		return e.refuse(short, bad.Error())
	case !errors.Is(err, errFailed):
		fmt.Fprintln(e.Stderr, err)
	}
	return 1
}

func (e *Env) refuse(usage, why string) int {
	fmt.Fprintf(e.Stderr, "%s\n%s: error: %s\n", usage, e.Name, why)
	return 1
}

func (e *Env) help(usage string, all []command) {
	fmt.Fprintf(e.Stdout, "%s\n\nFormats the log directories of a node and tells about them.\n\n", usage)
	for _, c := range all {
		fmt.Fprintf(e.Stdout, "  %-22s %s\n", c.name, c.help)
	}
}

func (e *Env) helpFor(usage string, c command) {
	fmt.Fprintf(e.Stdout, "%s\n\n%s\n", usage, c.help)
	for _, f := range c.flags {
		name := "--" + f.long
		if f.value != "" {
			name += " " + f.value
		}
		fmt.Fprintf(e.Stdout, "\n  %s, -%s\n      %s\n", name, f.short, f.help)
	}
}

func (e *Env) printf(format string, args ...any) { fmt.Fprintf(e.Stdout, format, args...) }

func (e *Env) randomUUID(parsed) error {
	e.printf("%s\n", uuid.Random(e.Rand))
	return nil
}

// node reads and checks the configuration file.
func (e *Env) node(p parsed) (*config.Node, error) {
	name := p.last("config")
	text, err := vfs.ReadFile(e.FS, name)
	if err != nil {
		return nil, err
	}
	static, _, err := config.Load(name, text, nil)
	if err != nil {
		return nil, err
	}
	return static.Node()
}

func (e *Env) format(p parsed) error {
	node, err := e.node(p)
	if err != nil {
		return err
	}
	o := format.Options{
		FS: e.FS, NowMs: e.Now().UnixMilli(), Rand: e.Rand, ClusterID: p.last("cluster-id"), NodeID: node.NodeID,
		LogDirs: node.LogDirs, MetadataDir: node.MetadataDir, IgnoreFormatted: p.has("ignore-formatted"),
		Print: func(line string) { fmt.Fprintln(e.Stdout, line) },
		Warn:  func(line string) { fmt.Fprintln(e.Stderr, line) },
	}
	if p.has("release-version") {
		r, err := format.ParseRelease(p.last("release-version"), false)
		if err != nil {
			return err
		}
		o.Release = &r
	}
	if o.Features, err = features(p["feature"]); err != nil {
		return err
	}
	for _, s := range p["add-scram"] {
		r, err := format.ParseScram(s, e.Rand)
		if err != nil {
			return err
		}
		o.Scram = append(o.Scram, r)
	}
	choice := format.Choice{Standalone: p.has("standalone"), None: p.has("no-initial-controllers")}
	if p.has("initial-controllers") {
		if choice.Initial, err = format.ParseInitialControllers(p.last("initial-controllers")); err != nil {
			return err
		}
	}
	if o.Quorum, err = format.QuorumFor(node, choice); err != nil {
		return err
	}
	return format.Format(o)
}

// features reads NAME=LEVEL arguments; the last one of a name counts.
func features(args []string) (map[string]int16, error) {
	out := map[string]int16{}
	for _, a := range args {
		name, text, ok := strings.Cut(a, "=")
		if !ok {
			return nil, format.Refusal(fmt.Sprintf("Can't parse feature=level string %s: equals sign not found.", a))
		}
		level, err := strconv.ParseInt(text, 10, 16)
		if err != nil {
			return nil, format.Refusal(fmt.Sprintf("Can't parse feature=level string %s: unable to parse %s as a short.", a, text))
		}
		out[name] = int16(level)
	}
	return out, nil
}

func (e *Env) versionMapping(p parsed) error {
	r, shown := format.LatestStable(), format.LatestStable().Name
	if p.has("release-version") {
		var err error
		shown = p.last("release-version")
		if r, err = format.ParseRelease(shown, true); err != nil {
			return err
		}
	}
	e.printf("%s=%d (%s)\n", image.FeatureMetadata, r.Level, shown)
	for _, f := range format.Features() {
		e.printf("%s=%d\n", f.Name, f.Default(r))
	}
	return nil
}

func (e *Env) featureDependencies(p parsed) error {
	for _, a := range p["feature"] {
		name, text, ok := strings.Cut(a, "=")
		if !ok {
			return format.Refusal(fmt.Sprintf("Invalid feature format: %s. Expected format: 'feature=version' (e.g. 'group.version=1')", a))
		}
		n, err := strconv.ParseInt(text, 10, 16)
		if err != nil {
			return format.Refusal(fmt.Sprintf("Invalid version format: %s for feature %s", text, name))
		}
		level := int16(n)
		if name == image.FeatureMetadata {
			r, ok := format.ReleaseOf(level)
			if !ok {
				return format.Refusal(fmt.Sprintf("Unknown metadata.version %d", level))
			}
			e.printf("%s=%d (%s) has no dependencies.\n", name, level, r.Name)
			continue
		}
		f, ok := format.FeatureNamed(name)
		switch {
		case !ok:
			return format.Refusal("Unknown feature: " + name)
		case level < 0 || level > f.Max:
			return format.Refusal(fmt.Sprintf("Feature level %d is not supported for feature %s", level, name))
		case f.Needs(level) == 0:
			e.printf("%s has no dependencies.\n", a)
		default:
			r, _ := format.ReleaseOf(f.Needs(level))
			e.printf("%s requires:\n    %s=%d (%s)\n", a, image.FeatureMetadata, r.Level, r.Name)
		}
	}
	return nil
}
