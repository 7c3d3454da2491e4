// Package epoch knows at which offset each leader epoch of a log starts:
// Kafka's LeaderEpochFileCache over the file leader-epoch-checkpoint.
//
// A follower that comes back asks its leader where its last epoch ended
// (OffsetForLeaderEpoch) and cuts its log there: the Cache answers both sides.
//
// The file is a shortcut. Every batch carries its leader epoch, so the cache
// can be rebuilt from the log; it is written when the log is flushed or rolled,
// not when an epoch starts, and never names an offset that the flushed log does
// not have.
package epoch
