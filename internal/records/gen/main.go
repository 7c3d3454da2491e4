// Command gen writes the Go code of package records from the texts in records/schema. Run it with go generate in
// internal/records (make generate); a test here fails when the committed code is not what it would write.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"weir/internal/records/schema"
)

func main() {
	out := flag.String("out", ".", "directory of package records")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(out string) error {
	messages, err := schema.Load(schema.Texts())
	if err != nil {
		return err
	}
	files, err := Generate(messages)
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
