package lint

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

//go:embed layers.txt
var layersText string

// layer is one line of layers.txt.
type layer struct {
	tier      int
	arrows    []string
	testsOnly []string
}

// parseLayers reads layers.txt. Tools (internal/tool/NAME) need no line: see layerOf.
func parseLayers(text string) (map[string]layer, error) {
	layers := map[string]layer{}
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		line, testsOnly, _ := strings.Cut(line, "=>")
		line, arrows, _ := strings.Cut(line, "->")
		f := strings.Fields(line)
		if len(f) != 2 {
			return nil, fmt.Errorf("layers.txt:%d: want: tier package [-> packages] [=> packages]", i+1)
		}
		tier, err := strconv.Atoi(f[0])
		if err != nil {
			return nil, fmt.Errorf("layers.txt:%d: tier %q: %w", i+1, f[0], err)
		}
		if _, twice := layers[f[1]]; twice {
			return nil, fmt.Errorf("layers.txt:%d: %s stands twice", i+1, f[1])
		}
		layers[f[1]] = layer{tier: tier, arrows: strings.Fields(arrows), testsOnly: strings.Fields(testsOnly)}
	}
	return layers, nil
}

// toolTier is the tier of internal/tool and everything in it: a tool is a client, so it may use what the server is
// made of except the server itself.
const toolTier = 4

// layerOf finds the layer of a package below internal/.
func layerOf(layers map[string]layer, pkg string) (layer, bool) {
	if isTool(pkg) {
		return layer{tier: toolTier}, true
	}
	l, ok := layers[pkg]
	return l, ok
}

func isTool(pkg string) bool { return pkg == "tool" || strings.HasPrefix(pkg, "tool/") }

// checkLayers enforces layers.txt over every import, those of tests included.
func checkLayers(t *tree, layers map[string]layer) []Problem {
	var out []Problem
	for _, f := range t.goSrc {
		from, inside := strings.CutPrefix(f.pkg, "internal/")
		if !inside {
			continue
		}
		l, ok := layerOf(layers, from)
		if !ok {
			out = append(out, f.problem(f.ast.Package, "package %s has no line in internal/lint/layers.txt; add one with its tier", from)...)
			continue
		}
		for _, spec := range f.ast.Imports {
			to, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module+"/internal/")
			if !ours {
				continue
			}
			if why := l.forbids(layers, from, to, f.test); why != "" {
				out = append(out, f.problem(spec.Pos(), "%s", why)...)
			}
		}
	}
	return out
}

func (l layer) forbids(layers map[string]layer, from, to string, test bool) string {
	target, ok := layerOf(layers, to)
	switch {
	case from == to, isTool(from) && isTool(to), target.tier < l.tier && ok, slices.Contains(l.arrows, to), test && slices.Contains(l.testsOnly, to):
		return ""
	case !ok:
		return fmt.Sprintf("%s is not in internal/lint/layers.txt; add a line with its tier", to)
	case target.tier > l.tier:
		return fmt.Sprintf("%s (tier %d) must not import %s (tier %d): imports go down; let the upper package pass in what is needed, as a value or a small interface declared here", from, l.tier, to, target.tier)
	}
	return fmt.Sprintf("%s must not import %s of its own tier %d: declare a small interface for what is needed, or, when the direction is right for good, add the arrow in internal/lint/layers.txt", from, to, l.tier)
}

// thirdParty lists the modules that only some folders may import, with the reason.
func thirdParty() map[string]struct{ allowed, why string } {
	const client = "the server is no client of itself; use the handler or the core behind it"
	return map[string]struct{ allowed, why string }{
		"github.com/twmb/franz-go/pkg/kgo":    {"cmd internal/tool internal/sim test bench", client},
		"github.com/twmb/franz-go/pkg/kadm":   {"cmd internal/tool internal/sim test bench", client},
		"github.com/spf13/cobra":              {"cmd internal/tool", "flags belong to commands"},
		"github.com/prometheus/client_golang": {"internal/metrics internal/broker", "packages count in plain atomics in a Stats struct; metrics reads them"},
		"github.com/klauspost/compress":       {"internal/batch", "codecs are reached through package batch"},
		"github.com/pierrec/lz4":              {"internal/batch", "codecs are reached through package batch"},
		"github.com/cockroachdb/datadriven":   {"tests", "it is a test library"},
		"github.com/google/go-cmp":            {"tests", "it is a test library"},
	}
}

// checkThirdParty keeps each foreign module where it belongs.
func checkThirdParty(t *tree) []Problem {
	var out []Problem
	for _, f := range t.goSrc {
		for _, spec := range f.ast.Imports {
			p := strings.Trim(spec.Path.Value, `"`)
			for mod, rule := range thirdParty() {
				if p != mod && !strings.HasPrefix(p, mod+"/") || f.test {
					continue
				}
				if !slices.ContainsFunc(strings.Fields(rule.allowed), func(dir string) bool {
					return f.pkg == dir || strings.HasPrefix(f.pkg, dir+"/")
				}) {
					out = append(out, f.problem(spec.Pos(), "%s is only for %s: %s", mod, rule.allowed, rule.why)...)
				}
			}
		}
	}
	return out
}
