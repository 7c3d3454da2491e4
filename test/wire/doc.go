// Package wire holds the protocol cases: requests written byte by byte over TCP,
// and what must come back. Each case is a function that talks to one node; what
// it sees is written down as a transcript, with ids, times and ports replaced by
// names, and compared with testdata/NAME.txt.
//
// The very same cases run against Weir and, when WEIR_ORACLE names the script
// that runs it, against Apache Kafka. So a transcript is what Kafka answers, and
// each difference of ours is a case with a reason and a second transcript,
// testdata/NAME.weir.txt. Versions that Kafka 4.x no longer serves are checked on
// Weir alone.
//
//	go test ./test/wire                    the quick cases, both nodes
//	WEIR_FULL=1 go test ./test/wire        all of them
//	go test ./test/wire -run '/K9' -v      one case
//	go test ./test/wire -rewrite           write the transcripts anew: read the diff
//
// WEIR_BIN names a weir binary to use instead of building one.
package wire
