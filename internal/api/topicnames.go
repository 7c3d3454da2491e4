package api

import (
	"fmt"
	"strings"
)

// internal tells Kafka's own topics, which clients may not write as they like.
func internal(topic string) bool {
	switch topic {
	case "__consumer_offsets", "__transaction_state", "__share_group_state":
		return true
	}
	return false
}

// maxTopicName is the longest legal topic name, in bytes.
const maxTopicName = 249

// validTopicName is Kafka's Topic.isValid.
func validTopicName(name string) bool { return invalidTopicName(name) == "" }

// invalidTopicName says why a name is none, "" when it is one (Topic.validate).
func invalidTopicName(name string) string {
	switch {
	case name == "":
		return "Topic name is invalid: the empty string is not allowed"
	case name == "." || name == "..":
		return fmt.Sprintf("Topic name is invalid: '%s' is not allowed", name)
	case len(name) > maxTopicName:
		return fmt.Sprintf("Topic name is invalid: the length of '%s' is longer than the max allowed length %d", name, maxTopicName)
	case strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
	}):
		return fmt.Sprintf("Topic name is invalid: '%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", name)
	}
	return ""
}

// Operations that a client may do when there is no authorizer, as bits of
// Kafka's AclOperation codes.
const (
	opRead = 1 << (iota + 3)
	opWrite
	opCreate
	opDelete
	opAlter
	opDescribe
	opClusterAction
	opDescribeConfigs
	opAlterConfigs
	opIdempotentWrite

	topicOperations   int32 = opRead | opWrite | opCreate | opDelete | opAlter | opDescribe | opDescribeConfigs | opAlterConfigs
	clusterOperations int32 = opCreate | opClusterAction | opDescribeConfigs | opAlterConfigs | opIdempotentWrite | opAlter | opDescribe

	operationsNotAsked int32 = -2147483648
)

func authorized(asked bool, all int32) int32 {
	if asked {
		return all
	}
	return operationsNotAsked
}
