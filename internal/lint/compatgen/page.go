package main

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"weir/internal/api"
	"weir/internal/wire"
)

const intro = `# Compatibility

<!-- Written by go generate ./internal/lint/compatgen from the comments in internal/api. Do not edit. -->

What a Weir node serves of the Kafka protocol, measured against Apache Kafka 4.3.1. Every API below is served in every
version from the oldest ever published (Apache Kafka 4.x has dropped some) to the newest that 4.3.1 serves. A node
advertises in ApiVersions exactly what stands in the first table: a client sees what is missing before it asks for it.

`

// served is an API of one of the tables of package api.
type served struct {
	api                wire.API
	doc                doc
	broker, controller bool
}

// page is the text of docs/compat.md; dir is the folder of package api.
func page(dir string) ([]byte, error) {
	docs, err := readDocs(dir)
	if err != nil {
		return nil, err
	}
	found, err := collect(docs)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString(intro)
	b.WriteString("## Served\n\n| key | API | versions | listeners |\n|----:|-----|----------|-----------|\n")
	for _, s := range found {
		if s != nil {
			fmt.Fprintf(&b, "| %d | [%s](#%s) | %s | %s |\n", s.api.Key, s.api.Name, strings.ToLower(s.api.Name), versions(s.api.Versions), s.listeners())
		}
	}
	b.WriteString("\n## Not served yet\n\nApache Kafka 4.3.1 has these too. A request for one of them closes the connection, with a line in the log.\n\n")
	b.WriteString("| key | API | versions in 4.3.1 |\n|----:|-----|-------------------|\n")
	for a := range wire.APIs() {
		if found[a.Key] == nil {
			fmt.Fprintf(&b, "| %d | %s | %s |\n", a.Key, a.Name, versions(a.Versions))
		}
	}
	b.WriteString("\n## Each API\n")
	for _, s := range found {
		if s != nil {
			s.write(&b)
		}
	}
	return b.Bytes(), nil
}

// collect asks both tables for what they serve, by API key.
func collect(docs map[string]doc) ([]*served, error) {
	last := int16(0)
	for a := range wire.APIs() {
		last = max(last, a.Key)
	}
	found := make([]*served, last+1)
	node := &api.Node{}
	for _, table := range []struct {
		handlers []api.Handler
		mark     func(*served)
	}{
		{node.BrokerTable().Handlers(), func(s *served) { s.broker = true }},
		{node.ControllerTable().Handlers(), func(s *served) { s.controller = true }},
	} {
		for _, h := range table.handlers {
			key := int16(h.Key())
			if found[key] == nil {
				a, ok := wire.Lookup(key)
				if !ok {
					return nil, fmt.Errorf("key %d is served and not in the table of APIs", key)
				}
				name := reflect.TypeOf(h).Elem().Name()
				d, ok := docs[name]
				if !ok {
					return nil, fmt.Errorf("handler %s has no comment", name)
				}
				found[key] = &served{api: a, doc: d.of(a.Name)}
			}
			table.mark(found[key])
		}
	}
	return found, nil
}

func versions(r wire.Range) string {
	if r.Min == r.Max {
		return fmt.Sprint(r.Min)
	}
	return fmt.Sprintf("%d–%d", r.Min, r.Max)
}

func (s *served) listeners() string {
	switch {
	case s.broker && s.controller:
		return "broker, controller"
	case s.controller:
		return "controller"
	}
	return "broker"
}

func (s *served) write(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n### %s\n\nKey %d, versions %s.", s.api.Name, s.api.Key, versions(s.api.Versions))
	for _, p := range s.doc.text {
		fmt.Fprintf(b, " %s", p)
	}
	b.WriteString("\n")
	if len(s.doc.versions) > 0 {
		b.WriteString("\n| version | what it changed |\n|---------|-----------------|\n")
	}
	for _, v := range s.doc.versions {
		fmt.Fprintf(b, "| %s | %s |\n", v.version, v.text)
	}
	if s.doc.missing != "" {
		fmt.Fprintf(b, "\n**Not implemented**: %s\n", s.doc.missing)
	}
}
