package controller

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// delete.topic.enable=false: nothing is deleted, and each topic is answered so.
func TestTopicDeletionDisabled(t *testing.T) {
	e := newEnv(30, false)
	e.o.NoTopicDeletion = true
	e.core = New(e.o)
	e.apply(e.core.Activate(e.step()))
	for version, want := range map[int16]*kerr.Error{2: kerr.InvalidRequest, 3: kerr.TopicDeletionDisabled, 6: kerr.TopicDeletionDisabled} {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.Version = version
		name := "a"
		if req.TopicNames = []string{name}; version >= 6 {
			topic := kmsg.NewDeleteTopicsRequestTopic()
			topic.Topic = &name
			req.TopicNames, req.Topics = nil, []kmsg.DeleteTopicsRequestTopic{topic}
		}
		r := e.core.DeleteTopics(e.step(), req)
		rows := r.Response.(*kmsg.DeleteTopicsResponse).Topics
		if len(r.Records) != 0 || len(rows) != 1 || *rows[0].Topic != name || rows[0].ErrorCode != want.Code || rows[0].ErrorMessage != nil {
			t.Errorf("v%d: %+v, %d records", version, rows, len(r.Records))
		}
	}
}
