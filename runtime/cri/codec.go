package cri

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// codec is gRPC's own for protobuf, but for the buffers in which replies are put
// together. Of those gRPC has none between 32 kB and 1 MB, and a list of a hundred
// containers needs one that is little larger than the first: most of what an idle
// agent held was these.
type codec struct {
	encoding.CodecV2
	buffers mem.BufferPool
}

func newCodec() codec {
	sizes := []int{256}
	for size := 4 << 10; size <= 4<<20; size *= 2 {
		sizes = append(sizes, size)
	}
	return codec{encoding.GetCodecV2("proto"), mem.NewTieredBufferPool(sizes...)}
}

// Unmarshal implements [encoding.CodecV2].
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	whole := data.MaterializeToBuffer(c.buffers)
	defer whole.Free()
	return c.CodecV2.Unmarshal(mem.BufferSlice{whole}, v)
}
