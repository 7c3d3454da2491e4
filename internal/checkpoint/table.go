package checkpoint

import (
	"fmt"
	"strconv"
	"strings"

	"weir/internal/vfs"
)

// tableVersion is the only version of the text tables.
const tableVersion = 0

// readTable reads a text table and hands each entry's fields to add:
//
//	0            version
//	2            number of entries
//	topic 0 42   one line for each
//
// An empty file is an empty table: Kafka makes such files and reads them so.
func readTable(fsys vfs.FS, path string, fields int, add func(f []string) error) error {
	lines, err := readLines(fsys, path)
	if err != nil || len(lines) == 0 {
		return err
	}
	version, err := strconv.Atoi(lines[0])
	if err != nil {
		return &Error{path, 1, fmt.Errorf("a version was expected, not %s", excerpt(lines[0]))}
	}
	if version != tableVersion {
		return &Error{path, 1, fmt.Errorf("version %d, only %d is known", version, tableVersion)}
	}
	if len(lines) < 2 {
		return &Error{path, 2, fmt.Errorf("the number of entries is missing")}
	}
	want, err := strconv.Atoi(lines[1])
	if err != nil || want < 0 {
		return &Error{path, 2, fmt.Errorf("a number of entries was expected, not %s", excerpt(lines[1]))}
	}
	for i, line := range lines[2:] {
		f := strings.Fields(line)
		if len(f) != fields {
			return &Error{path, i + 3, fmt.Errorf("%d fields were expected in %s", fields, excerpt(line))}
		}
		if err := add(f); err != nil {
			return &Error{path, i + 3, fmt.Errorf("%w in %s", err, excerpt(line))}
		}
	}
	if got := len(lines) - 2; got != want {
		return &Error{path, 2, fmt.Errorf("%d entries were announced, the file has %d", want, got)}
	}
	return nil
}

// encodeTable puts the head before the lines of the entries, each with its line end.
func encodeTable(entries int, lines []byte) []byte {
	head := fmt.Appendf(make([]byte, 0, len(lines)+16), "%d\n%d\n", tableVersion, entries)
	return append(head, lines...)
}
