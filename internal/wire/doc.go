// Package wire knows how Kafka requests and responses look as bytes on a connection: the request header by API key and
// version, the table of APIs and the versions Apache Kafka 4.3.1 serves of each, the kinds of answer a handler may give,
// and the encoder of fetch answers, which describes records by their place in a file instead of copying them.
//
//	request   int32 size │ int16 key  int16 version  int32 correlation id  nullable string client id │ body     header v1
//	          … the same, then tagged fields                                                         │ body     header v2
//	response  int32 size │ int32 correlation id                                                      │ body     header v0
//	          int32 size │ int32 correlation id  tagged fields                                       │ body     header v1
//
// Header v2 (requests) and v1 (responses) go with the flexible versions of an API (KIP-482). The answer to ApiVersions
// keeps response header v0 at every version, because a client reads it before it knows the broker.
//
// Bodies are encoded and decoded by kmsg. This package reads no socket and no file: package network does.
package wire
