package cri

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// codec is gRPC's codec for protobuf with other buffers for replies. gRPC has no buffer sizes between 32 kB and 1 MB,
// while the list of a hundred containers needs little more than 32 kB: these buffers were most of the memory of an idle
// agent.
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
