// Package lint holds the rules of the architecture as tests: `go test ./internal/lint` fails when a file breaks one,
// and says what to do instead.
//
//	layers.go    who may import whom: layers.txt lists every package with its tier and its arrows
//	calls.go     what pure cores, runtimes and tests must not call: clocks, dice, files, goroutines, sleeps
//	globals.go   no init functions, no package variables that change
//	size.go      length of files and functions
//	text.go      one doc per package, no open ends in comments, no paths of somebody's machine, no dead path in the docs
//
// Each rule is a function from the parsed repository to a list of problems. The rules themselves are tested on small
// sources that break them.
//
// An exception is written where it is needed: a comment `// lint: reason` on the line or the one above. The reason is
// for the reader; without one there is no exception. (A sleep in a test needs just any comment that says why.)
package lint
