package cri

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A reply comes in parts, and is read in a buffer of twice its size at most.
func TestCodecReadsReplies(t *testing.T) {
	c := newCodec()
	assert.Equal(t, "proto", c.Name())
	sent := &criv1.ListContainersResponse{}
	for i := range 1000 {
		sent.Containers = append(sent.Containers, &criv1.Container{Id: fmt.Sprintf("%064d", i),
			Labels: map[string]string{"io.kubernetes.pod.name": "web"}})
	}
	marshalled, err := c.Marshal(sent)
	require.NoError(t, err)
	wire := marshalled.Materialize()
	require.Greater(t, len(wire), 64<<10)
	var parts mem.BufferSlice
	for begin := 0; begin < len(wire); begin += 16 << 10 {
		parts = append(parts, mem.SliceBuffer(wire[begin:min(begin+16<<10, len(wire))]))
	}
	for range 3 { // the buffer is used again
		got := &criv1.ListContainersResponse{}
		require.NoError(t, c.Unmarshal(parts, got))
		assert.True(t, proto.Equal(sent, got))
	}
	for _, size := range []int{40 << 10, 100 << 10, 3 << 20} {
		assert.LessOrEqual(t, cap(*c.buffers.Get(size)), 2*size)
	}
	require.Error(t, c.Unmarshal(parts[1:], &criv1.ListContainersResponse{}), "a part is missing")
	require.Error(t, c.Unmarshal(parts, "not a message"))
}
