package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"weir/internal/records/schema"
)

func TestGeneratedCodeIsCurrent(t *testing.T) {
	messages, err := schema.Load(schema.Texts())
	if err != nil {
		t.Fatal(err)
	}
	want, err := Generate(messages)
	if err != nil {
		t.Fatal(err)
	}
	present, err := filepath.Glob("../*.gen.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range present {
		if want[filepath.Base(name)] == nil {
			t.Errorf("%s is generated from nothing: remove it", name)
		}
	}
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join("..", name))
		if err != nil || !bytes.Equal(got, text) {
			t.Errorf("%s is not what the schema texts say (%v): run make generate", name, err)
		}
	}
}
