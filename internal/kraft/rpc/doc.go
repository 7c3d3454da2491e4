// Package rpc writes the quorum's requests and answers as Kafka's messages and
// reads them: Vote v0–2, BeginQuorumEpoch v0–1, EndQuorumEpoch v0–1, Fetch of
// the metadata partition, FetchSnapshot v0–1, DescribeQuorum.
//
//	who asks     EncodeRequest ─▶ wire ─▶ DecodeResponse     request.go, response.go
//	who answers  DecodeRequest ─▶ core ─▶ EncodeResponse     serve.go
//
// A version that has no place for a field leaves it out, as Kafka does, but for
// one case: a pre-vote below Vote v2 would be a real vote, so it is not encoded.
package rpc
