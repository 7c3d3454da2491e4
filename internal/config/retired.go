package config

const zooKeeperReason = "Weir keeps its metadata in a KRaft quorum and knows no ZooKeeper; "

// zooKeeperKeys lists the keys of ZooKeeper times that would leave a node without a cluster, with what to write instead.
func zooKeeperKeys() map[string]string {
	const quorum = "write process.roles=broker,controller, node.id=1, listeners=PLAINTEXT://:9092,CONTROLLER://:9093, " +
		"controller.listener.names=CONTROLLER and controller.quorum.bootstrap.servers=localhost:9093 instead, " +
		"and format the directories with `weir storage format`"
	const remove = "remove the line"
	m := map[string]string{
		"zookeeper.connect":                   quorum,
		"zookeeper.metadata.migration.enable": remove + "; a cluster is migrated to KRaft with Apache Kafka 3.9 before Weir takes over",
		"broker.id.generation.enable":         "ids are not generated: write node.id with a number of its own for each node",
		"reserved.broker.max.id":              "ids are not generated: write node.id with a number of its own for each node",
	}
	for _, k := range []string{
		"connection.timeout.ms", "session.timeout.ms", "max.in.flight.requests", "set.acl", "ssl.client.enable",
		"clientCnxnSocket", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type",
		"ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type", "ssl.protocol",
		"ssl.enabled.protocols", "ssl.cipher.suites", "ssl.endpoint.identification.algorithm", "ssl.crl.enable",
		"ssl.ocsp.enable", "sync.time.ms",
	} {
		name := "zookeeper." + k
		if k == "clientCnxnSocket" {
			name = "zookeeper.clientCnxnSocket"
		}
		m[name] = remove
	}
	return m
}

// removedKeys lists keys that earlier versions of Kafka knew and 4.x ignores, with the reason. They are warned about.
func removedKeys() map[string]string {
	const (
		format   = "records are always stored in the newest format (message format v2)"
		protocol = "the finalized metadata.version rules what nodes speak; raise it with `weir features upgrade`"
	)
	return map[string]string{
		"log.message.format.version":              format,
		"log.message.downconversion.enable":       "old fetch versions are always converted",
		"log.message.timestamp.difference.max.ms": "write log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms instead",
		"inter.broker.protocol.version":           protocol,
		"control.plane.listener.name":             "requests between nodes use controller.listener.names and inter.broker.listener.name",
		"controlled.shutdown.max.retries":         "a node asks for its controlled shutdown until it is granted",
		"controlled.shutdown.retry.backoff.ms":    "a node asks for its controlled shutdown until it is granted",
		"offsets.commit.required.acks":            "offset commits always wait for all in-sync replicas",
		"leader.imbalance.per.broker.percentage":  "every partition goes back to its preferred leader",
		"host.name":                               "write listeners=PLAINTEXT://<host>:9092 instead",
		"port":                                    "write listeners=PLAINTEXT://:<port> instead",
		"advertised.host.name":                    "write advertised.listeners=PLAINTEXT://<host>:9092 instead",
		"advertised.port":                         "write advertised.listeners=PLAINTEXT://<host>:<port> instead",
		"quota.producer.default":                  "set quotas with `weir configs --entity-type clients` instead",
		"quota.consumer.default":                  "set quotas with `weir configs --entity-type clients` instead",
		"password.encoder.secret":                 "it protected passwords in ZooKeeper",
		"password.encoder.old.secret":             "it protected passwords in ZooKeeper",
		"password.encoder.keyfactory.algorithm":   "it protected passwords in ZooKeeper",
		"password.encoder.cipher.algorithm":       "it protected passwords in ZooKeeper",
		"password.encoder.key.length":             "it protected passwords in ZooKeeper",
		"password.encoder.iterations":             "it protected passwords in ZooKeeper",
		"auto.include.jmx.reporter":               "metrics are served by weir.metrics.listener",
		"group.coordinator.new.enable":            "there is only one group coordinator",
		"group.share.enable":                      "the finalized feature share.version rules it",
	}
}
