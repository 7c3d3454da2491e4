// Package follower holds the rules by which a broker copies partitions from one
// leader: what to ask for next, what to do with the answer, and when to try again.
//
// A [Core] is one conversation with one leader (Kafka's AbstractFetcherThread
// and FetchSessionHandler). It is stepped and owns no clock, socket or log:
//
//	req, at := core.Request(now)           what to send, or when to ask again
//	actions := core.Response(now, answer)  what to do with the partitions' logs
//	core.Done(now, outcome)                how that went, one for each action
//
// # What a partition goes through
//
//	fetching     its next fetch is asked for at the log's end
//	busy         its driver appends, truncates or looks offsets up
//	delayed      the leader refused it; it is asked for again after a pause
//	failed       it waits for the next leader epoch
//
// Logs that disagree are found by the leader: a fetch names the leader epoch of
// the last record here, and the answer says where both logs still agree (KIP-595).
// A log without epochs starts at its high watermark instead.
//
// # Sessions
//
// The first request names every partition, later ones only those whose place has
// changed (KIP-227). So an idle partition costs nothing, on either side.
package follower
