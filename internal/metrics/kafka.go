package metrics

import (
	"iter"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Sources is where the values come from. Each is called at every scrape, from the scraping goroutine, and must not
// block. A nil source leaves its metrics out: a controller has no topics, a broker no controller.
type Sources struct {
	State      func() BrokerState
	Topics     iter.Seq2[string, Topic] // those with traffic since the start
	Traffic    func() Traffic
	Replicas   func() Replicas
	Controller func() Controller
	Logs       iter.Seq[Log]
	Dirs       iter.Seq2[string, bool] // log directory, whether it is offline
	Requests   iter.Seq[Request]       // APIs asked for since the start
	Listeners  iter.Seq2[string, int]  // name, open connections
	Network    func() Network
}

// BrokerState is Kafka's BrokerState as a number.
type BrokerState int

// The states of a broker (org.apache.kafka.metadata.BrokerState).
const (
	NotRunning                BrokerState = 0
	Starting                  BrokerState = 1
	Recovery                  BrokerState = 2
	Running                   BrokerState = 3
	PendingControlledShutdown BrokerState = 6
	ShuttingDown              BrokerState = 7
)

// Topic counts the traffic of one topic on this broker (Kafka's BrokerTopicMetrics).
type Topic struct {
	MessagesIn, BytesIn, BytesOut, BytesRejected int64
	ProduceRequests, FetchRequests               int64 // per partition, as Kafka counts them
	FailedProduceRequests, FailedFetchRequests   int64
	ProduceConversions, FetchConversions         int64 // messages converted from or to an old format
}

// Traffic counts what has no topic.
type Traffic struct{ ReplicationBytesIn, ReplicationBytesOut int64 }

// Replicas is the state of this broker's partitions (Kafka's ReplicaManager).
type Replicas struct {
	Partitions, Leaders, UnderReplicated, UnderMinISR, AtMinISR, Offline, Reassigning int64
	ISRShrinks, ISRExpands, FailedISRUpdates, Truncated                               int64 // counters
}

// Controller is what a controller knows (Kafka's KafkaController and ControllerStats).
type Controller struct {
	Active                                          bool
	ActiveBrokers, FencedBrokers, Topics            int64
	Partitions, OfflinePartitions, PreferredBehind  int64
	MetadataErrors, UncleanElections                int64 // counters
	LastAppliedOffset, LastAppliedMs, LastCommitted int64
}

// Log is one partition's log on disk (Kafka's Log).
type Log struct {
	Topic                             string
	Partition                         int32
	Size, StartOffset, EndOffset, Num int64 // Num is the number of segments
}

// Request counts the requests of one API (Kafka's RequestMetrics).
type Request struct {
	API          string // Kafka's name
	Count, Bytes int64
	Total, Local Distribution // from read to written; inside the handler
}

// Network counts what happened to connections and frames.
type Network struct {
	Accepted, Closed, IdleClosed, Refused      int64
	BadFrames, SlowClosed, Failed              int64
	BytesIn, BytesOut, SendfileBytes           int64
	MemoryUsed, MemoryWaits, Pending, Throttle int64
}

// Register shows the sources. It is called once.
func (r *Registry) Register(s Sources) {
	r.show(table[:], func(e emitter) { collectSources(e, s) })
}

// show registers the names of a table; fill sends their values at every scrape.
func (r *Registry) show(table []desc, fill func(emitter)) {
	c := &collector{fill, make(map[string]*prometheus.Desc, len(table))}
	for _, d := range table {
		c.descs[d.name] = prometheus.NewDesc(d.name, d.help, d.labels, nil)
	}
	r.reg.MustRegister(c)
}

// collector reads the sources of one table at a scrape.
type collector struct {
	fill  func(emitter)
	descs map[string]*prometheus.Desc
}

// desc is one line of the table of names.
type desc struct {
	name, help string
	labels     []string
}

var (
	noLabels   []string
	perTopic   = []string{"topic"}
	perLog     = []string{"topic", "partition"}
	perRequest = []string{"request"}
)

// table lists every name that Sources can fill. It is filled here and never changed.
var table = [...]desc{
	{"kafka_server_kafkaserver_brokerstate", "State of the broker: 1 starting, 2 recovering, 3 running, 6 pending controlled shutdown, 7 shutting down.", noLabels},
	{"kafka_server_brokertopicmetrics_messagesin_total", "Records produced; topic is empty for the sum.", perTopic},
	{"kafka_server_brokertopicmetrics_bytesin_total", "Bytes produced; topic is empty for the sum.", perTopic},
	{"kafka_server_brokertopicmetrics_bytesout_total", "Bytes fetched by consumers; topic is empty for the sum.", perTopic},
	{"kafka_server_brokertopicmetrics_bytesrejected_total", "Bytes refused for their size; topic is empty for the sum.", perTopic},
	{"kafka_server_brokertopicmetrics_totalproducerequests_total", "Produce requests; topic is empty for the sum.", perTopic},
	{"kafka_server_brokertopicmetrics_totalfetchrequests_total", "Fetch requests of consumers; topic is empty for the sum.", perTopic},
	{"kafka_server_brokertopicmetrics_failedproducerequests_total", "Produce requests that failed; topic is empty for the sum.", perTopic},
	{"kafka_server_brokertopicmetrics_failedfetchrequests_total", "Fetch requests of consumers that failed; topic is empty for the sum.", perTopic},
	{"kafka_server_brokertopicmetrics_producemessageconversions_total", "Records converted from an old format; topic is empty for the sum.", perTopic},
	{"kafka_server_brokertopicmetrics_fetchmessageconversions_total", "Records converted to an old format; topic is empty for the sum.", perTopic},
	{"kafka_server_brokertopicmetrics_replicationbytesin_total", "Bytes fetched from leaders.", noLabels},
	{"kafka_server_brokertopicmetrics_replicationbytesout_total", "Bytes fetched by followers.", noLabels},
	{"kafka_server_replicamanager_partitioncount", "Partitions on this broker.", noLabels},
	{"kafka_server_replicamanager_leadercount", "Partitions this broker leads.", noLabels},
	{"kafka_server_replicamanager_underreplicatedpartitions", "Led partitions whose ISR is smaller than their replicas.", noLabels},
	{"kafka_server_replicamanager_underminisrpartitioncount", "Led partitions whose ISR is smaller than min.insync.replicas.", noLabels},
	{"kafka_server_replicamanager_atminisrpartitioncount", "Led partitions whose ISR is exactly min.insync.replicas.", noLabels},
	{"kafka_server_replicamanager_offlinereplicacount", "Replicas in offline log directories.", noLabels},
	{"kafka_server_replicamanager_reassigningpartitions", "Led partitions that are being reassigned.", noLabels},
	{"kafka_server_replicamanager_isrshrinks_total", "ISR changes that took a replica out.", noLabels},
	{"kafka_server_replicamanager_isrexpands_total", "ISR changes that took a replica in.", noLabels},
	{"kafka_server_replicamanager_failedisrupdates_total", "ISR changes that the controller refused.", noLabels},
	{"weir_replication_truncated_records_total", "Records cut from logs of followers because their leaders did not have them.", noLabels},
	{"kafka_controller_kafkacontroller_activecontrollercount", "1 on the active controller, else 0.", noLabels},
	{"kafka_controller_kafkacontroller_activebrokercount", "Registered brokers that are not fenced.", noLabels},
	{"kafka_controller_kafkacontroller_fencedbrokercount", "Registered brokers that are fenced.", noLabels},
	{"kafka_controller_kafkacontroller_globaltopiccount", "Topics of the cluster.", noLabels},
	{"kafka_controller_kafkacontroller_globalpartitioncount", "Partitions of the cluster.", noLabels},
	{"kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions without a leader.", noLabels},
	{"kafka_controller_kafkacontroller_preferredreplicaimbalancecount", "Partitions not led by their first replica.", noLabels},
	{"kafka_controller_kafkacontroller_metadataerrorcount", "Errors while handling metadata.", noLabels},
	{"kafka_controller_kafkacontroller_lastappliedrecordoffset", "Offset of the last metadata record applied.", noLabels},
	{"kafka_controller_kafkacontroller_lastappliedrecordtimestamp", "Timestamp of the last metadata record applied, in ms.", noLabels},
	{"kafka_controller_kafkacontroller_lastcommittedrecordoffset", "Offset of the last metadata record committed.", noLabels},
	{"kafka_controller_controllerstats_uncleanleaderelections_total", "Elections that may have lost records.", noLabels},
	{"kafka_log_log_size", "Bytes of the partition on disk.", perLog},
	{"kafka_log_log_logstartoffset", "First offset of the partition.", perLog},
	{"kafka_log_log_logendoffset", "Next offset of the partition.", perLog},
	{"kafka_log_log_numlogsegments", "Segments of the partition.", perLog},
	{"kafka_log_logmanager_logdirectoryoffline", "1 when the log directory is offline.", []string{"logDirectory"}},
	{"kafka_log_logmanager_offlinelogdirectorycount", "Log directories that are offline.", noLabels},
	{"kafka_network_requestmetrics_requests_total", "Requests.", perRequest},
	{"kafka_network_requestmetrics_requestbytes_total", "Bytes of requests.", perRequest},
	{"kafka_network_requestmetrics_totaltimems", "Time from the whole request read to the whole answer written, in ms, since the start.", perRequest},
	{"kafka_network_requestmetrics_localtimems", "Time inside the handler, in ms, since the start.", perRequest},
	{"weir_network_request_seconds", "Time from the whole request read to the whole answer written.", perRequest},
	{"kafka_server_socket_server_metrics_connection_count", "Open connections.", []string{"listener"}},
	{"kafka_server_socket_server_metrics_connection_creation_total", "Connections accepted.", noLabels},
	{"kafka_server_socket_server_metrics_connection_close_total", "Connections closed.", noLabels},
	{"kafka_server_socket_server_metrics_incoming_byte_total", "Bytes of requests read.", noLabels},
	{"kafka_server_socket_server_metrics_outgoing_byte_total", "Bytes of answers written.", noLabels},
	{"kafka_network_socketserver_memorypoolused", "Bytes of the request memory in use.", noLabels},
	{"kafka_network_socketserver_expiredconnectionskilledcount", "Connections closed after connections.max.idle.ms.", noLabels},
	{"weir_network_connections_refused_total", "Connections closed at once for max.connections.per.ip.", noLabels},
	{"weir_network_bad_frames_total", "Connections closed for what they sent.", noLabels},
	{"weir_network_slow_peers_total", "Connections closed because the peer was too slow.", noLabels},
	{"weir_network_failed_requests_total", "Connections closed by a request that cannot be answered, such as a failed acks=0.", noLabels},
	{"weir_network_sendfile_bytes_total", "Bytes of answers that went from the page cache to the socket.", noLabels},
	{"weir_network_memory_waits_total", "Requests that had to wait for request memory.", noLabels},
	{"weir_network_pending_answers", "Produce answers that wait for the commit.", noLabels},
	{"weir_network_throttled_answers_total", "Answers after which a connection was paused.", noLabels},
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) { c.fill(emitter{c.descs, ch}) }

func collectSources(e emitter, s Sources) {
	if s.State != nil {
		e.gauge("kafka_server_kafkaserver_brokerstate", int64(s.State()))
	}
	if s.Topics != nil {
		e.topics(s.Topics)
	}
	if s.Traffic != nil {
		t := s.Traffic()
		e.counter("kafka_server_brokertopicmetrics_replicationbytesin_total", t.ReplicationBytesIn)
		e.counter("kafka_server_brokertopicmetrics_replicationbytesout_total", t.ReplicationBytesOut)
	}
	if s.Replicas != nil {
		e.replicas(s.Replicas())
	}
	if s.Controller != nil {
		e.controller(s.Controller())
	}
	if s.Logs != nil {
		e.logs(s.Logs)
	}
	if s.Dirs != nil {
		e.dirs(s.Dirs)
	}
	if s.Requests != nil {
		e.requests(s.Requests)
	}
	if s.Listeners != nil {
		for name, n := range s.Listeners {
			e.gauge("kafka_server_socket_server_metrics_connection_count", int64(n), name)
		}
	}
	if s.Network != nil {
		e.network(s.Network())
	}
}

// emitter sends constant metrics of one scrape.
type emitter struct {
	descs map[string]*prometheus.Desc
	ch    chan<- prometheus.Metric
}

func (e emitter) gauge(name string, v int64, labels ...string) {
	e.ch <- prometheus.MustNewConstMetric(e.descs[name], prometheus.GaugeValue, float64(v), labels...)
}

func (e emitter) counter(name string, v int64, labels ...string) {
	e.ch <- prometheus.MustNewConstMetric(e.descs[name], prometheus.CounterValue, float64(v), labels...)
}

// topics sends each topic and, under the empty name, their sum: JMX has an object without a topic for it, and to
// Prometheus an empty label is none.
func (e emitter) topics(topics iter.Seq2[string, Topic]) {
	var sum Topic
	for name, t := range topics {
		e.topic(name, t)
		sum.MessagesIn += t.MessagesIn
		sum.BytesIn += t.BytesIn
		sum.BytesOut += t.BytesOut
		sum.BytesRejected += t.BytesRejected
		sum.ProduceRequests += t.ProduceRequests
		sum.FetchRequests += t.FetchRequests
		sum.FailedProduceRequests += t.FailedProduceRequests
		sum.FailedFetchRequests += t.FailedFetchRequests
		sum.ProduceConversions += t.ProduceConversions
		sum.FetchConversions += t.FetchConversions
	}
	e.topic("", sum)
}

func (e emitter) topic(name string, t Topic) {
	const prefix = "kafka_server_brokertopicmetrics_"
	e.counter(prefix+"messagesin_total", t.MessagesIn, name)
	e.counter(prefix+"bytesin_total", t.BytesIn, name)
	e.counter(prefix+"bytesout_total", t.BytesOut, name)
	e.counter(prefix+"bytesrejected_total", t.BytesRejected, name)
	e.counter(prefix+"totalproducerequests_total", t.ProduceRequests, name)
	e.counter(prefix+"totalfetchrequests_total", t.FetchRequests, name)
	e.counter(prefix+"failedproducerequests_total", t.FailedProduceRequests, name)
	e.counter(prefix+"failedfetchrequests_total", t.FailedFetchRequests, name)
	e.counter(prefix+"producemessageconversions_total", t.ProduceConversions, name)
	e.counter(prefix+"fetchmessageconversions_total", t.FetchConversions, name)
}

func (e emitter) replicas(r Replicas) {
	const prefix = "kafka_server_replicamanager_"
	e.gauge(prefix+"partitioncount", r.Partitions)
	e.gauge(prefix+"leadercount", r.Leaders)
	e.gauge(prefix+"underreplicatedpartitions", r.UnderReplicated)
	e.gauge(prefix+"underminisrpartitioncount", r.UnderMinISR)
	e.gauge(prefix+"atminisrpartitioncount", r.AtMinISR)
	e.gauge(prefix+"offlinereplicacount", r.Offline)
	e.gauge(prefix+"reassigningpartitions", r.Reassigning)
	e.counter(prefix+"isrshrinks_total", r.ISRShrinks)
	e.counter(prefix+"isrexpands_total", r.ISRExpands)
	e.counter(prefix+"failedisrupdates_total", r.FailedISRUpdates)
	e.counter("weir_replication_truncated_records_total", r.Truncated)
}

func (e emitter) controller(c Controller) {
	const prefix = "kafka_controller_kafkacontroller_"
	active := int64(0)
	if c.Active {
		active = 1
	}
	e.gauge(prefix+"activecontrollercount", active)
	e.gauge(prefix+"activebrokercount", c.ActiveBrokers)
	e.gauge(prefix+"fencedbrokercount", c.FencedBrokers)
	e.gauge(prefix+"globaltopiccount", c.Topics)
	e.gauge(prefix+"globalpartitioncount", c.Partitions)
	e.gauge(prefix+"offlinepartitionscount", c.OfflinePartitions)
	e.gauge(prefix+"preferredreplicaimbalancecount", c.PreferredBehind)
	e.gauge(prefix+"metadataerrorcount", c.MetadataErrors)
	e.gauge(prefix+"lastappliedrecordoffset", c.LastAppliedOffset)
	e.gauge(prefix+"lastappliedrecordtimestamp", c.LastAppliedMs)
	e.gauge(prefix+"lastcommittedrecordoffset", c.LastCommitted)
	e.counter("kafka_controller_controllerstats_uncleanleaderelections_total", c.UncleanElections)
}

func (e emitter) logs(logs iter.Seq[Log]) {
	for l := range logs {
		partition := strconv.Itoa(int(l.Partition))
		e.gauge("kafka_log_log_size", l.Size, l.Topic, partition)
		e.gauge("kafka_log_log_logstartoffset", l.StartOffset, l.Topic, partition)
		e.gauge("kafka_log_log_logendoffset", l.EndOffset, l.Topic, partition)
		e.gauge("kafka_log_log_numlogsegments", l.Num, l.Topic, partition)
	}
}

func (e emitter) dirs(dirs iter.Seq2[string, bool]) {
	var total int64
	for dir, offline := range dirs {
		var v int64
		if offline {
			v = 1
		}
		total += v
		e.gauge("kafka_log_logmanager_logdirectoryoffline", v, dir)
	}
	e.gauge("kafka_log_logmanager_offlinelogdirectorycount", total)
}

func (e emitter) requests(requests iter.Seq[Request]) {
	for r := range requests {
		e.counter("kafka_network_requestmetrics_requests_total", r.Count, r.API)
		e.counter("kafka_network_requestmetrics_requestbytes_total", r.Bytes, r.API)
		e.summary("kafka_network_requestmetrics_totaltimems", r.Total, r.API)
		e.summary("kafka_network_requestmetrics_localtimems", r.Local, r.API)
		count, buckets := r.Total.cumulative()
		e.ch <- prometheus.MustNewConstHistogram(e.descs["weir_network_request_seconds"], count, r.Total.Sum.Seconds(), buckets, r.API)
	}
}

func (e emitter) summary(name string, d Distribution, labels ...string) {
	count, at := d.summarize()
	e.ch <- prometheus.MustNewConstSummary(e.descs[name], count, millis(d.Sum), at, labels...)
}

func (e emitter) network(n Network) {
	const prefix = "kafka_server_socket_server_metrics_"
	e.counter(prefix+"connection_creation_total", n.Accepted)
	e.counter(prefix+"connection_close_total", n.Closed)
	e.counter(prefix+"incoming_byte_total", n.BytesIn)
	e.counter(prefix+"outgoing_byte_total", n.BytesOut)
	e.gauge("kafka_network_socketserver_memorypoolused", n.MemoryUsed)
	e.gauge("kafka_network_socketserver_expiredconnectionskilledcount", n.IdleClosed)
	e.counter("weir_network_connections_refused_total", n.Refused)
	e.counter("weir_network_bad_frames_total", n.BadFrames)
	e.counter("weir_network_slow_peers_total", n.SlowClosed)
	e.counter("weir_network_failed_requests_total", n.Failed)
	e.counter("weir_network_sendfile_bytes_total", n.SendfileBytes)
	e.counter("weir_network_memory_waits_total", n.MemoryWaits)
	e.gauge("weir_network_pending_answers", n.Pending)
	e.counter("weir_network_throttled_answers_total", n.Throttle)
}
