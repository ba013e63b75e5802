package grpcprobe

import (
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// Both messages of the call, as grpc/health/v1/health.proto has them:
//
//	message HealthCheckRequest { string service = 1; }
//	message HealthCheckResponse { ServingStatus status = 1; }
const (
	serviceField = 1
	statusField  = 1
)

// servingStatus is the enum HealthCheckResponse.ServingStatus.
type servingStatus int32

const serving servingStatus = 1

// String returns the name of the status, or its number if it has none.
func (s servingStatus) String() string {
	names := [...]string{"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"}
	if s >= 0 && int(s) < len(names) {
		return names[s]
	}
	return strconv.Itoa(int(s))
}

// appendRequest appends a HealthCheckRequest.
func appendRequest(b []byte, service string) []byte {
	if service == "" {
		return b
	}
	b = protowire.AppendTag(b, serviceField, protowire.BytesType)
	return protowire.AppendString(b, service)
}

// parseResponse returns the status in a HealthCheckResponse. As always with
// protocol buffers, the last value counts and other fields are skipped.
func parseResponse(b []byte) (servingStatus, error) {
	var status servingStatus
	for len(b) > 0 {
		field, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		b = b[n:]
		if field == statusField && wire == protowire.VarintType {
			var v uint64
			v, n = protowire.ConsumeVarint(b)
			status = servingStatus(v)
		} else {
			n = protowire.ConsumeFieldValue(field, wire, b)
		}
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		b = b[n:]
	}
	return status, nil
}
