package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/batch"
	"weir/internal/config"
	"weir/internal/image"
	"weir/internal/partition"
	"weir/internal/replication"
	"weir/internal/statemachine"
	"weir/internal/storage"
	"weir/internal/wire"
)

func TestErrorCodes(t *testing.T) {
	for _, x := range []struct {
		err  error
		want *kerr.Error
	}{
		{kerr.UnknownTopicID, kerr.UnknownTopicID},
		{errUnknownPartition, kerr.UnknownTopicOrPartition},
		{&batch.InvalidRecordError{Code: kerr.InvalidTimestamp.Code}, kerr.InvalidTimestamp},
		{&batch.InvalidRecordError{Code: kerr.MessageTooLarge.Code}, kerr.MessageTooLarge},
		{&batch.InvalidRecordError{Code: kerr.UnknownServerError.Code}, kerr.UnknownServerError},
		{&batch.CorruptError{}, kerr.CorruptMessage},
		{&storage.BadBatchError{Err: io.EOF}, kerr.CorruptMessage},
		{&partition.NotLeaderError{}, kerr.NotLeaderForPartition},
		{&partition.EpochError{Asked: 1, Have: 2}, kerr.FencedLeaderEpoch},
		{&partition.EpochError{Asked: 3, Have: 2}, kerr.UnknownLeaderEpoch},
		{&partition.NotEnoughReplicasError{}, kerr.NotEnoughReplicas},
		{&partition.NotEnoughReplicasError{AfterAppend: true}, kerr.NotEnoughReplicasAfterAppend},
		{&partition.OffsetNotAvailableError{}, kerr.OffsetNotAvailable},
		{&storage.OutOfRangeError{}, kerr.OffsetOutOfRange},
		{&storage.TooLargeError{}, kerr.RecordListTooLarge},
		{&replication.NotHostedError{}, kerr.NotLeaderForPartition},
		{&replication.OfflineError{Err: io.EOF}, kerr.KafkaStorageError},
		{&storage.DiskError{Err: storage.ErrNoSpace}, kerr.KafkaStorageError},
		{&storage.CorruptError{Err: io.EOF}, kerr.KafkaStorageError},
		{storage.ErrClosed, kerr.KafkaStorageError},
		{storage.ErrOutOfOrderSequence, kerr.OutOfOrderSequenceNumber},
		{storage.ErrInvalidEpoch, kerr.InvalidProducerEpoch},
		{storage.ErrInvalidTxnState, kerr.InvalidTxnState},
		{storage.ErrCoordinatorFenced, kerr.TransactionCoordinatorFenced},
		{statemachine.ErrNotLeader, kerr.NotController},
		{context.DeadlineExceeded, kerr.RequestTimedOut},
		{context.Canceled, kerr.RequestTimedOut},
		{io.ErrUnexpectedEOF, kerr.UnknownServerError},
	} {
		for _, err := range []error{x.err, fmt.Errorf("wrapped: %w", x.err)} {
			if got := kind(err); got != x.want {
				t.Errorf("%v: %v, want %v", err, got, x.want)
			}
		}
	}
	if code(nil) != 0 || messageOf(nil) != nil || ownText(nil) != nil {
		t.Error("no error has code 0 and no text")
	}
	if ownText(kerr.InvalidRequest) != nil || *ownText(refuse(kerr.InvalidRequest, "because")) != "because" {
		t.Error("an own text is one that was written here")
	}
}

// deaf is a controller that does not answer.
type deaf struct{}

func (deaf) Do(context.Context, kmsg.Request) (kmsg.Response, error) {
	return nil, fmt.Errorf("%w: there is no active controller", statemachine.ErrNotLeader)
}

// Every row of a request that the controller did not answer tells so.
func TestNoController(t *testing.T) {
	name, id := "t", [16]byte{1}
	for _, x := range []struct {
		req   kmsg.Request
		codes func(kmsg.Response) []int16
	}{
		{&kmsg.CreateTopicsRequest{Version: 7, Topics: make([]kmsg.CreateTopicsRequestTopic, 2)}, func(r kmsg.Response) (c []int16) {
			for _, t := range r.(*kmsg.CreateTopicsResponse).Topics {
				c = append(c, t.ErrorCode)
			}
			return c
		}},
		{&kmsg.DeleteTopicsRequest{Version: 6, Topics: []kmsg.DeleteTopicsRequestTopic{{Topic: &name}, {TopicID: id}}}, func(r kmsg.Response) (c []int16) {
			for _, t := range r.(*kmsg.DeleteTopicsResponse).Topics {
				c = append(c, t.ErrorCode)
			}
			return c
		}},
		{&kmsg.CreatePartitionsRequest{Version: 3, Topics: make([]kmsg.CreatePartitionsRequestTopic, 2)}, func(r kmsg.Response) (c []int16) {
			for _, t := range r.(*kmsg.CreatePartitionsResponse).Topics {
				c = append(c, t.ErrorCode)
			}
			return c
		}},
		{&kmsg.IncrementalAlterConfigsRequest{Version: 1, Resources: make([]kmsg.IncrementalAlterConfigsRequestResource, 2)}, func(r kmsg.Response) (c []int16) {
			for _, t := range r.(*kmsg.IncrementalAlterConfigsResponse).Resources {
				c = append(c, t.ErrorCode)
			}
			return c
		}},
		{&kmsg.UpdateFeaturesRequest{Version: 2}, func(r kmsg.Response) []int16 {
			c := r.(*kmsg.UpdateFeaturesResponse).ErrorCode
			return []int16{c, c}
		}},
		{&kmsg.ElectLeadersRequest{Version: 2}, func(r kmsg.Response) []int16 {
			c := r.(*kmsg.ElectLeadersResponse).ErrorCode
			return []int16{c, c}
		}},
	} {
		f := &Forward{API: kmsg.Key(x.req.Key()), Controller: deaf{}}
		res := f.Handle(t.Context(), nil, x.req).(wire.Message).Response
		want := kerr.NotController.Code
		if got := x.codes(res); len(got) != 2 || got[0] != want || got[1] != want {
			t.Errorf("%T: codes %v, want %d twice", res, got, want)
		}
		if res.GetVersion() != x.req.GetVersion() {
			t.Errorf("%T: answered at v%d", res, res.GetVersion())
		}
	}
}

// obedient is a controller that says yes to every resource.
type obedient struct{ asked []string }

func (o *obedient) Do(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
	req, ok := r.(*kmsg.IncrementalAlterConfigsRequest)
	if !ok {
		return nil, errors.New("not asked for this")
	}
	res := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	for _, x := range req.Resources {
		o.asked = append(o.asked, x.ResourceName)
		res.Resources = append(res.Resources, kmsg.IncrementalAlterConfigsResponseResource{ResourceType: x.ResourceType, ResourceName: x.ResourceName})
	}
	return res, nil
}

// Settings of another broker are refused here, the rest is forwarded, and the
// answer is in the order of the request.
func TestConfigsOfOtherBrokers(t *testing.T) {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	for _, name := range []string{"7", "1", "", "x"} {
		req.Resources = append(req.Resources, kmsg.IncrementalAlterConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: name})
	}
	o := new(obedient)
	h := &AlterConfigs{
		Forward: Forward{API: kmsg.IncrementalAlterConfigs, Controller: o, Images: new(fakeImages)}, NodeID: 1, Configs: brokerConfigs(t, nil),
	}
	res := h.Handle(t.Context(), nil, req).(wire.Message).Response.(*kmsg.IncrementalAlterConfigsResponse)
	var got []string
	for _, x := range res.Resources {
		got = append(got, fmt.Sprintf("%q:%d", x.ResourceName, x.ErrorCode))
	}
	if want := `["7":42 "1":0 "":0 "x":42]`; fmt.Sprint(got) != want || fmt.Sprint(o.asked) != "[1 ]" {
		t.Errorf("answered %v, want %s; asked %q", got, want, o.asked)
	}
}

// fixedConfigs is a broker's configuration that nobody changes.
type fixedConfigs struct{ eff *config.Effective }

func (f fixedConfigs) Effective() *config.Effective { return f.eff }

// brokerConfigs is broker 1 with two log directories and these dynamic values.
func brokerConfigs(t *testing.T, dynamic map[string]string) fixedConfigs {
	t.Helper()
	s, _, err := config.Load("server.properties", []byte("node.id=1\nprocess.roles=broker,controller\nlisteners=PLAINTEXT://:9092\nlog.dirs=/a,/b\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return fixedConfigs{config.NewEffective(s, nil, dynamic)}
}

// What is not valid for this broker as it is now is refused here, with Kafka's
// words; what is not well formed is left to the controller.
func TestConfigsAreJudgedByTheirBroker(t *testing.T) {
	d := image.NewDelta(image.New())
	if err := d.Replay(image.ConfigRecord(image.Resource{Type: image.ResourceBroker, Name: "1"}, "num.io.threads", kmsg.StringPtr("16"))); err != nil {
		t.Fatal(err)
	}
	const set, remove, add = kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpDelete, kmsg.IncrementalAlterConfigOpAppend
	for _, c := range []struct {
		op         kmsg.IncrementalAlterConfigOp
		key, value string
		want       string
	}{
		{set, "num.io.threads", "32", "0"}, // 16 now
		{set, "num.io.threads", "33", "42 Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation failed for num.io.threads=33, value should not be greater than double the current value 16 for configuration Invalid dynamic configuration"},
		{remove, "num.io.threads", "", "0"},
		{set, "cordoned.log.dirs", "/c", "42 requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : /c"},
		{add, "cordoned.log.dirs", "/a", "0"},
		{add, "message.max.bytes", "1", "40 Config value append is not allowed for config key: message.max.bytes"},
		{7, "message.max.bytes", "-1", "0"}, // not well formed: the controller's answer
	} {
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		req.Version = 1
		op := kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: c.key, Op: c.op, Value: &c.value}
		req.Resources = append(req.Resources, kmsg.IncrementalAlterConfigsRequestResource{
			ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1", Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{op},
		})
		h := &AlterConfigs{
			Forward: Forward{API: kmsg.IncrementalAlterConfigs, Controller: new(obedient), Images: &fakeImages{img: d.Image()}},
			NodeID:  1, Configs: brokerConfigs(t, map[string]string{"num.io.threads": "16"}),
		}
		row := h.Handle(t.Context(), nil, req).(wire.Message).Response.(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
		got := fmt.Sprint(row.ErrorCode)
		if row.ErrorMessage != nil {
			got += " " + *row.ErrorMessage
		}
		if got != c.want {
			t.Errorf("%s %s:\n have  %s\n Kafka %s", c.key, c.value, got, c.want)
		}
	}
}
