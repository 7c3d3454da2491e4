// Command compatgen writes docs/compat.md, the page that says which APIs a node serves: keys and versions from the
// tables of package api, what the versions changed and what is not implemented from the comments above its handlers.
//
// Run it with go generate ./internal/lint/compatgen after a handler or its comment has changed; a test fails until then.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

//go:generate go run . ../../..

func main() {
	err := errors.New("usage: compatgen ROOT")
	if len(os.Args) == 2 {
		err = generate(os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "compatgen:", err)
		os.Exit(1) // lint: this package is a command of its own
	}
}

func generate(root string) error {
	text, err := page(filepath.Join(root, "internal", "api"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "docs", "compat.md"), text, 0o644)
}
