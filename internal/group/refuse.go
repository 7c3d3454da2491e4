package group

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/group/classic"
	"weir/internal/group/consumer"
)

// Refuse turns an answer into one that says that the request failed.
func Refuse(a classic.Answer, err *kerr.Error) classic.Answer {
	switch m := a.Response.(type) {
	case *kmsg.JoinGroupResponse:
		a.Response = classic.RefusedJoin(m.Version, m.MemberID, err)
	case *kmsg.SyncGroupResponse:
		a.Response = &kmsg.SyncGroupResponse{Version: m.Version, ErrorCode: err.Code, MemberAssignment: []byte{}}
	case *kmsg.HeartbeatResponse:
		a.Response = &kmsg.HeartbeatResponse{Version: m.Version, ErrorCode: err.Code}
	case *kmsg.ConsumerGroupHeartbeatResponse:
		a.Response = consumer.Refused(m.Version, &consumer.Error{Kind: err})
	case *kmsg.LeaveGroupResponse:
		a.Response = &kmsg.LeaveGroupResponse{Version: m.Version, ErrorCode: err.Code}
	case *kmsg.OffsetDeleteResponse:
		a.Response = &kmsg.OffsetDeleteResponse{Version: m.Version, ErrorCode: err.Code}
	case *kmsg.OffsetCommitResponse:
		for i := range m.Topics {
			for j := range m.Topics[i].Partitions {
				m.Topics[i].Partitions[j].ErrorCode = err.Code
			}
		}
	case *kmsg.TxnOffsetCommitResponse:
		for i := range m.Topics {
			for j := range m.Topics[i].Partitions {
				m.Topics[i].Partitions[j].ErrorCode = err.Code
			}
		}
	default:
		panic(fmt.Sprintf("BUG: no refusal of %T", a.Response))
	}
	return a
}
