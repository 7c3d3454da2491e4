package api

import "github.com/twmb/franz-go/pkg/kmsg"

// errorResponse answers a request that the controller did not answer: every row
// gets the error (AbstractRequest.getErrorResponse).
func errorResponse(req kmsg.Request, err error) kmsg.Response {
	c, text := code(err), messageOf(err)
	switch q := req.(type) {
	case *kmsg.CreateTopicsRequest:
		r := responseTo[*kmsg.CreateTopicsResponse](req)
		for _, t := range q.Topics {
			row := kmsg.NewCreateTopicsResponseTopic()
			row.Topic, row.ErrorCode, row.ErrorMessage = t.Topic, c, text
			r.Topics = append(r.Topics, row)
		}
		return r
	case *kmsg.DeleteTopicsRequest:
		r := responseTo[*kmsg.DeleteTopicsResponse](req)
		for _, name := range q.TopicNames {
			row := kmsg.NewDeleteTopicsResponseTopic()
			row.Topic, row.ErrorCode, row.ErrorMessage = &name, c, text
			r.Topics = append(r.Topics, row)
		}
		for _, t := range q.Topics {
			row := kmsg.NewDeleteTopicsResponseTopic()
			row.Topic, row.TopicID, row.ErrorCode, row.ErrorMessage = t.Topic, t.TopicID, c, text
			r.Topics = append(r.Topics, row)
		}
		return r
	case *kmsg.CreatePartitionsRequest:
		r := responseTo[*kmsg.CreatePartitionsResponse](req)
		for _, t := range q.Topics {
			row := kmsg.NewCreatePartitionsResponseTopic()
			row.Topic, row.ErrorCode, row.ErrorMessage = t.Topic, c, text
			r.Topics = append(r.Topics, row)
		}
		return r
	case *kmsg.AlterConfigsRequest:
		r := responseTo[*kmsg.AlterConfigsResponse](req)
		for _, x := range q.Resources {
			row := kmsg.NewAlterConfigsResponseResource()
			row.ResourceType, row.ResourceName, row.ErrorCode, row.ErrorMessage = x.ResourceType, x.ResourceName, c, text
			r.Resources = append(r.Resources, row)
		}
		return r
	case *kmsg.IncrementalAlterConfigsRequest:
		r := responseTo[*kmsg.IncrementalAlterConfigsResponse](req)
		for _, x := range q.Resources {
			row := kmsg.NewIncrementalAlterConfigsResponseResource()
			row.ResourceType, row.ResourceName, row.ErrorCode, row.ErrorMessage = x.ResourceType, x.ResourceName, c, text
			r.Resources = append(r.Resources, row)
		}
		return r
	}
	return flatErrorResponse(req, c, text)
}

// flatErrorResponse is for answers with one error for all.
func flatErrorResponse(req kmsg.Request, c int16, text *string) kmsg.Response {
	res := req.ResponseKind()
	switch r := res.(type) {
	case *kmsg.UpdateFeaturesResponse:
		r.ErrorCode, r.ErrorMessage = c, text
	case *kmsg.ElectLeadersResponse:
		r.ErrorCode = c
	case *kmsg.AlterPartitionResponse:
		r.ErrorCode = c
	case *kmsg.AllocateProducerIDsResponse:
		r.ErrorCode = c
	case *kmsg.BrokerRegistrationResponse:
		r.ErrorCode = c
	case *kmsg.BrokerHeartbeatResponse:
		r.ErrorCode = c
	case *kmsg.UnregisterBrokerResponse:
		r.ErrorCode, r.ErrorMessage = c, text
	case *kmsg.AssignReplicasToDirsResponse:
		r.ErrorCode = c
	case *kmsg.ControllerRegistrationResponse:
		r.ErrorCode, r.ErrorMessage = c, text
	case *kmsg.AddRaftVoterResponse:
		r.ErrorCode, r.ErrorMessage = c, text
	case *kmsg.RemoveRaftVoterResponse:
		r.ErrorCode, r.ErrorMessage = c, text
	case *kmsg.UpdateRaftVoterResponse:
		r.ErrorCode = c
	case *kmsg.DescribeQuorumResponse:
		r.ErrorCode, r.ErrorMessage = c, text
	case *kmsg.AlterPartitionAssignmentsResponse:
		r.ErrorCode, r.ErrorMessage = c, text
	case *kmsg.ListPartitionReassignmentsResponse:
		r.ErrorCode, r.ErrorMessage = c, text
	}
	return res
}
