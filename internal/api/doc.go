// Package api answers Kafka requests: one file per API key, each a small struct
// that names just what it needs. table.go lists all of them and hands a request
// of a connection to its handler; ApiVersions answers from the same list, so an
// API is advertised exactly when it is served.
//
// Each handler's comment says which versions it serves, what each version
// changed where that matters to the code, and what is not implemented.
//
// errors.go maps what lower packages report to Kafka's error codes; no other
// file does.
package api
