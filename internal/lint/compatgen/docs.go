package main

import (
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
)

// doc is what the comment of a handler says.
type doc struct {
	text     []string // paragraphs behind the first, which only repeats name, key and versions
	versions []change
	missing  string // behind "Not implemented: "
}

// change is a line such as "v4  read committed" of the indented list; in the comment of a handler for several APIs the
// first word of the line is the API.
type change struct{ api, version, text string }

// readDocs reads the comments of all types declared in a folder.
func readDocs(dir string) (map[string]doc, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, &fs.PathError{Op: "read", Path: dir, Err: fs.ErrNotExist}
	}
	docs := map[string]doc{}
	fset := token.NewFileSet()
	for _, name := range files {
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, spec := range g.Specs {
				t := spec.(*ast.TypeSpec)
				if text := t.Doc; text != nil {
					docs[t.Name.Name] = parse(text.Text())
				} else if g.Doc != nil && len(g.Specs) == 1 {
					docs[t.Name.Name] = parse(g.Doc.Text())
				}
			}
		}
	}
	return docs, nil
}

// parse takes a handler's comment apart.
func parse(text string) doc {
	var d doc
	var p comment.Parser
	var pr comment.Printer
	for i, block := range p.Parse(text).Content {
		switch block := block.(type) {
		case *comment.Code:
			d.versions = append(d.versions, changes(block.Text)...)
		case *comment.Paragraph:
			plain := string(pr.Text(&comment.Doc{Content: []comment.Block{block}}))
			plain = strings.Join(strings.Fields(plain), " ")
			rest, missing := strings.CutPrefix(plain, "Not implemented: ")
			switch {
			case missing:
				d.missing = rest
			case i == 0:
				if _, behind, ok := strings.Cut(plain, ". "); ok {
					d.text = append(d.text, behind)
				}
			default:
				d.text = append(d.text, plain)
			}
		}
	}
	return d
}

// lineForm is an API's name, when several share the comment, and the versions that something is said about.
var lineForm = regexp.MustCompile(`^(?:([A-Z]\w+)\s+)?(v\d+(?:[–-]v?\d+)?)\s+(.*)$`)

func changes(block string) []change {
	var out []change
	for line := range strings.Lines(block) {
		line = strings.TrimSpace(line)
		// "v3 replica id; v4 flexible": one row each.
		name := ""
		for _, part := range strings.Split(line, "; ") {
			m := lineForm.FindStringSubmatch(part)
			switch {
			case m != nil:
				if m[1] != "" {
					name = m[1]
				}
				out = append(out, change{name, m[2], m[3]})
			case len(out) > 0 && part != "":
				out[len(out)-1].text += "; " + part
			}
		}
	}
	return out
}

// of keeps what concerns one API.
func (d doc) of(api string) doc {
	kept := d
	kept.versions = nil
	for _, c := range d.versions {
		if c.api == "" || c.api == api {
			kept.versions = append(kept.versions, c)
		}
	}
	return kept
}
