package cri

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// field returns a field with a value of any length, n times.
func field(number protowire.Number, value []byte, n int) []byte {
	one := protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
	return bytes.Repeat(one, n)
}

// A reply of a few bytes a value would take a hundred times its size when it is decoded.
func TestRepliesWithTooManyValues(t *testing.T) {
	c := newCodec()
	for name, tt := range map[string]struct {
		wire func(n int) []byte
		into proto.Message
	}{
		"empty containers": {func(n int) []byte { return field(1, nil, n) }, &criv1.ListContainersResponse{}},
		"empty sandboxes":  {func(n int) []byte { return field(1, nil, n) }, &criv1.ListPodSandboxResponse{}},
		"streamed":         {func(n int) []byte { return field(1, nil, n) }, &criv1.StreamContainersResponse{}},
		"mounts":           {func(n int) []byte { return field(1, field(14, nil, n), 1) }, &criv1.ContainerStatusResponse{}},
		"labels":           {func(n int) []byte { return field(1, field(8, nil, n), 1) }, &criv1.ListContainersResponse{}},
		"tags of an image": {func(n int) []byte { return field(1, field(2, nil, n), 1) }, &criv1.ListImagesResponse{}},
		"packed groups": {
			func(n int) []byte { return field(1, field(18, field(1, field(3, make([]byte, 2*n), 1), 1), 1), 1) }, &criv1.ContainerStatusResponse{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			few := proto.Clone(tt.into)
			require.NoError(t, c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(tt.wire(3))}, few))
			assert.Positive(t, values(few.ProtoReflect()))

			err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(tt.wire(maxReplyValues + 1))}, tt.into)
			require.ErrorContains(t, err, "more than 500000 values")
			assert.Zero(t, values(tt.into.ProtoReflect()), "nothing is decoded")
		})
	}
}

// What a large node has is accepted.
func TestReplyOfALargeNode(t *testing.T) {
	labels := map[string]string{}
	for i := range 25 {
		labels[fmt.Sprintf("io.kubernetes.label-%d", i)] = "value"
	}
	sent := &criv1.ListContainersResponse{}
	for i := range 2_000 {
		sent.Containers = append(sent.Containers, &criv1.Container{Id: fmt.Sprintf("%064d", i), Metadata: &criv1.ContainerMetadata{Name: "c"}, Labels: labels})
	}
	wire, err := proto.Marshal(sent)
	require.NoError(t, err)
	got := &criv1.ListContainersResponse{}
	require.NoError(t, newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}, got))
	assert.Len(t, got.GetContainers(), 2_000)
}

func TestUnaryListIsBounded(t *testing.T) {
	r := New(nil, nil, Options{})
	_, err := fetch(r, false, nil, func() ([]int, error) { return make([]int, maxListItems+1), nil })
	require.ErrorIs(t, err, errTooLong)
	list, err := fetch(r, false, nil, func() ([]int, error) { return make([]int, maxListItems), nil })
	require.NoError(t, err)
	assert.Len(t, list, maxListItems)
}

// A runtime may list the instances of one container in any order.
func TestSortManyInstances(t *testing.T) {
	var list []*criv1.Container
	for i := range maxListItems {
		list = append(list, &criv1.Container{Id: fmt.Sprint(i), CreatedAt: int64(maxListItems - i), Metadata: &criv1.ContainerMetadata{Name: "c", Attempt: uint32(i)}})
	}
	sortContainers(list, keyOfContainer)
	assert.True(t, slices.IsSortedFunc(list, func(a, b *criv1.Container) int {
		return int(b.GetMetadata().GetAttempt()) - int(a.GetMetadata().GetAttempt())
	}))
}

// values counts the values of a decoded message.
func values(m protoreflect.Message) (n int) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
			n += v.Map().Len()
			if fd.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { n += 1 + values(v.Message()); return true })
			}
		case fd.IsList():
			n += v.List().Len()
			for i := range v.List().Len() {
				if fd.Message() != nil {
					n += values(v.List().Get(i).Message())
				}
			}
		case fd.Message() != nil:
			n += 1 + values(v.Message())
		}
		return true
	})
	return n
}

// No value of a message that can be decoded escapes the count.
func FuzzCountValues(f *testing.F) {
	all := []proto.Message{
		&criv1.ListContainersResponse{}, &criv1.ListPodSandboxResponse{}, &criv1.ContainerStatusResponse{}, &criv1.PodSandboxStatusResponse{},
		&criv1.ContainerEventResponse{}, &criv1.StatusResponse{}, &criv1.ListImagesResponse{}, &criv1.ContainerStatsResponse{},
	}
	for kind := range all {
		f.Add(kind, field(1, field(14, nil, 3), 2))
		f.Add(kind, field(1, field(18, field(1, field(3, []byte{1, 2, 3}, 1), 2), 1), 1))
		f.Add(kind, field(2, field(8, field(1, []byte("key"), 1), 2), 1))
	}
	f.Fuzz(func(t *testing.T, kind int, data []byte) {
		m := proto.Clone(all[uint(kind)%uint(len(all))])
		if proto.Unmarshal(data, m) != nil {
			return
		}
		left := len(data) + 1
		before := left
		countValues(data, m.ProtoReflect().Descriptor(), &left)
		if counted := before - left; counted < values(m.ProtoReflect()) {
			t.Errorf("%d values were counted, of %d", counted, values(m.ProtoReflect()))
		}
	})
}
