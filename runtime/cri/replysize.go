package cri

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxReplyValues is the maximum number of values in a reply: messages and elements of lists
// and maps, at any depth. A container in a list has about 30. It bounds the memory of a
// decoded reply: an empty message takes 2 bytes in a reply, and hundreds in memory.
const maxReplyValues = 500_000

// maxStatusReply is the maximum size of the status of one sandbox or container in bytes, as
// in kubelet. It is that of a request, too, by the default of runtimes: nothing that was
// created has a larger one. Statuses are kept.
const maxStatusReply = 16 << 20

// atMost limits the size of the reply to one call, in bytes.
func (r *Runtime) atMost(size int) grpc.CallOption {
	return grpc.MaxCallRecvMsgSize(min(size, r.opts.MaxMessageSize))
}

// sandboxStatus is PodSandboxStatus with the limit of its reply.
func (r *Runtime) sandboxStatus(ctx context.Context, req *criv1.PodSandboxStatusRequest, opts ...grpc.CallOption) (*criv1.PodSandboxStatusResponse, error) {
	return r.rs.PodSandboxStatus(ctx, req, append(opts, r.atMost(maxStatusReply))...)
}

// containerStatus is ContainerStatus with the limit of its reply.
func (r *Runtime) containerStatus(ctx context.Context, req *criv1.ContainerStatusRequest, opts ...grpc.CallOption) (*criv1.ContainerStatusResponse, error) {
	return r.rs.ContainerStatus(ctx, req, append(opts, r.atMost(maxStatusReply))...)
}

// checkReply returns an error if an encoded message has too many values.
func checkReply(data []byte, md protoreflect.MessageDescriptor) error {
	// A value takes at least two bytes, except numbers of a packed list, which take little
	// memory. So most replies need not be read twice.
	if len(data) <= 2*maxReplyValues {
		return nil
	}
	left := maxReplyValues
	if countValues(data, md, &left); left < 0 {
		return fmt.Errorf("the reply of the runtime has more than %d values", maxReplyValues)
	}
	return nil
}

// countValues subtracts the number of values from left, until it is negative. It stops where
// the data is not valid, since the decoder does so too.
func countValues(data []byte, md protoreflect.MessageDescriptor, left *int) {
	for len(data) > 0 && *left >= 0 {
		number, typ, n := protowire.ConsumeTag(data)
		if n < 0 {
			return
		}
		data = data[n:]
		size := protowire.ConsumeFieldValue(number, typ, data)
		if size < 0 {
			return
		}
		value := data[:size]
		data = data[size:]
		fd := md.Fields().ByNumber(number)
		switch {
		case fd == nil: // kept as it is
		case typ == protowire.BytesType && fd.Message() != nil:
			*left--
			body, _ := protowire.ConsumeBytes(value)
			countValues(body, fd.Message(), left)
		case typ == protowire.BytesType && fd.IsList() && fd.Kind() != protoreflect.StringKind && fd.Kind() != protoreflect.BytesKind:
			*left -= size // packed numbers: one byte each, or more
		case fd.IsList():
			*left--
		}
	}
}
