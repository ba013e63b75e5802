package grpcprobe

import (
	"fmt"
	"net/http"
	"strconv"
)

// code is a status code of gRPC
// (https://github.com/grpc/grpc/blob/master/doc/statuscodes.md).
type code uint32

const (
	codeOK                code = 0
	codeUnknown           code = 2
	codeDeadlineExceeded  code = 4
	codePermissionDenied  code = 7
	codeResourceExhausted code = 8
	codeUnimplemented     code = 12
	codeInternal          code = 13
	codeUnavailable       code = 14
	codeUnauthenticated   code = 16
)

// String returns the name of the code.
func (c code) String() string {
	names := [...]string{
		"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
		"PermissionDenied", "ResourceExhausted",
		"FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable",
		"DataLoss", "Unauthenticated",
	}
	if int64(c) < int64(len(names)) {
		return names[c]
	}
	return "Code(" + strconv.FormatUint(uint64(c), 10) + ")"
}

// rpcError is a status other than OK, from the server or found on the way to it.
type rpcError struct {
	code    code
	message string
}

// Error returns the text that grpc-go has.
func (e *rpcError) Error() string {
	return fmt.Sprintf("rpc error: code = %s desc = %s", e.code, e.message)
}

func internal(format string, args ...any) error {
	return &rpcError{codeInternal, fmt.Sprintf(format, args...)}
}

// codeOfHTTP returns the code for a response that is not one of gRPC
// (https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md).
func codeOfHTTP(status int) code {
	switch status {
	case http.StatusBadRequest:
		return codeInternal
	case http.StatusUnauthorized:
		return codeUnauthenticated
	case http.StatusForbidden:
		return codePermissionDenied
	case http.StatusNotFound:
		return codeUnimplemented
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return codeUnavailable
	default:
		return codeUnknown
	}
}
