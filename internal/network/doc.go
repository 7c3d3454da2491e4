// Package network is the server side of Kafka's wire protocol.
package network
