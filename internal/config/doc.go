// Package config knows every setting of a node: what Kafka calls it, what it may be, where its value comes from.
//
// One table (keys.tsv, read by table.go) lists all broker, topic and group keys with type, default, valid values,
// whether a running broker accepts a change, and a short explanation. Everything else is derived from it:
//
//	server.properties ──parse──▶ Static ──▶ Node        what the process needs to start (roles, listeners, directories)
//	                               │
//	dynamic broker configs ──▶ Effective ──▶ Topic      what one replica's log needs, all values resolved and typed
//	                               │
//	                               └──────▶ []Entry     the rows of a DescribeConfigs answer, synonyms included
//
// A value is looked for in Kafka's order: the topic's or group's own override, the broker's dynamic config, the
// cluster-wide dynamic default, server.properties, the built-in default. A topic key has broker synonyms
// (retention.ms ← log.retention.ms ← log.retention.minutes ← log.retention.hours), most specific first.
//
// The package does no I/O and starts nothing: callers hand in the text of the file. Static, Effective, Node and Topic
// are immutable once made and may be shared between goroutines.
package config
