package controller

import (
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"weir/internal/records"
)

// producerIDBlock is how many producer ids a broker gets at once.
const producerIDBlock = 1000

// AllocateProducerIDs hands a broker the next block of producer ids (KIP-730).
func (c *Core) AllocateProducerIDs(s Step, req *kmsg.AllocateProducerIDsRequest) Result {
	resp := kmsg.NewPtrAllocateProducerIDsResponse()
	resp.Version = req.Version
	first := s.Image.NextProducerID()
	err := checkEpoch(s.Image, req.BrokerID, req.BrokerEpoch)
	if err == nil && first > math.MaxInt64-producerIDBlock {
		err = refuse(kerr.UnknownServerError, "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit")
	}
	if err != nil {
		resp.ErrorCode = err.Code
		return Result{Response: resp, Err: err}
	}
	r := records.NewProducerIdsRecord()
	r.BrokerID, r.BrokerEpoch, r.NextProducerID = req.BrokerID, req.BrokerEpoch, first+producerIDBlock
	resp.ProducerIDStart, resp.ProducerIDLen = first, producerIDBlock
	return Result{Records: []records.Versioned{{Record: &r}}, Response: resp}
}
