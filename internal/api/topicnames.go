package api

import "strings"

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
func validTopicName(name string) bool {
	if name == "" || name == "." || name == ".." || len(name) > maxTopicName {
		return false
	}
	return strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
	}) < 0
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
