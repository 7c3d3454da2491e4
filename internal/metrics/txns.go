package metrics

import "github.com/prometheus/client_golang/prometheus"

// Txns is what a transaction coordinator knows.
type Txns struct {
	// Partitions are those of __transaction_state that this broker leads and has loaded, Loading those it still loads.
	Partitions, Loading                int
	IDs                                int   // transactional ids
	Open                               int   // open transactions
	Marking                            int   // transactions whose outcome stands and whose markers are on their way
	OldestOpen                         int64 // ms since the oldest open transaction began, 0 when none is open
	Late                               int64 // partitions with a transaction that is older than any may be: it hangs
	Commits, Aborts, TimedOut, Expired int64 // counters; TimedOut of the aborts, Expired of transactional ids
	GivenUp                            int64 // counter: transactions a marker of which was refused for good
}

const (
	txnPrefix = "weir_transaction_"
	txnLate   = "kafka_server_replicamanager_partitionswithlatetransactionscount"
	txnQueue  = "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize"
)

// txnTable is the names that RegisterTxns fills. It is filled here and never changed.
var txnTable = [...]desc{
	{txnPrefix + "partitions", "Partitions of __transaction_state that this broker leads.", []string{"state"}},
	{txnPrefix + "ids", "Transactional ids that this broker coordinates.", noLabels},
	{txnPrefix + "open", "Open transactions.", noLabels},
	{txnPrefix + "marking", "Transactions whose outcome stands and whose markers are on their way.", noLabels},
	{txnPrefix + "oldest_open_seconds", "How long the oldest open transaction has been open.", noLabels},
	{txnPrefix + "ended", "Transactions that came to their end.", []string{"outcome"}},
	{txnPrefix + "timed_out", "Transactions aborted because their time was over.", noLabels},
	{txnPrefix + "expired_ids", "Transactional ids forgotten because nobody used them.", noLabels},
	{txnPrefix + "markers_given_up", "Transactions of which a marker was refused for good: a newer coordinator or producer has been there.", noLabels},
	{txnLate, "Partitions with a transaction that is older than transaction.max.timeout.ms allows: it hangs.", noLabels},
	{txnQueue, "Markers without a known leader; always 0: they are not queued.", noLabels},
}

// RegisterTxns shows a transaction coordinator. It is called once; f, at every scrape, must not block.
func (r *Registry) RegisterTxns(f func() Txns) {
	r.show(txnTable[:], func(e emitter) { collectTxns(e, f()) })
}

func collectTxns(e emitter, t Txns) {
	e.gauge(txnPrefix+"partitions", int64(t.Partitions), "active")
	e.gauge(txnPrefix+"partitions", int64(t.Loading), "loading")
	e.gauge(txnPrefix+"ids", int64(t.IDs))
	e.gauge(txnPrefix+"open", int64(t.Open))
	e.gauge(txnPrefix+"marking", int64(t.Marking))
	e.ch <- prometheus.MustNewConstMetric(e.descs[txnPrefix+"oldest_open_seconds"], prometheus.GaugeValue, float64(t.OldestOpen)/1000)
	e.counter(txnPrefix+"ended", t.Commits, "commit")
	e.counter(txnPrefix+"ended", t.Aborts, "abort")
	e.counter(txnPrefix+"timed_out", t.TimedOut)
	e.counter(txnPrefix+"expired_ids", t.Expired)
	e.counter(txnPrefix+"markers_given_up", t.GivenUp)
	e.gauge(txnLate, t.Late)
	e.gauge(txnQueue, 0)
}
