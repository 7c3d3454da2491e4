module librdkafka

go 1.26.0

require github.com/confluentinc/confluent-kafka-go v1.4.2
