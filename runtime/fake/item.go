package fake

import (
	"slices"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// item is an entry of a list of sandboxes or containers as it goes over a wire, field
// number and all. It is made when it is first listed, and kept as long as nothing
// changes: a list of thousands costs a copy then, and does not outweigh what is to be
// measured on the other side.
type item []byte

// encode makes an item of a list that has one entry.
func encode(list any) item {
	data, err := encoding.GetCodecV2(proto.Name).Marshal(list)
	if err != nil {
		return nil // no message of CRI has anything that cannot be encoded
	}
	defer data.Free()
	return data.Materialize()
}

// join makes the items the entries of a list. To the message they are fields that it
// does not know; on the way to the other side there is no difference.
func join(items []item) []byte { return slices.Concat(items...) }

// listed is the sandbox as an entry of a list. In the answers of ListPodSandbox and
// StreamPodSandboxes it has the same number. mu is held.
func (sb *sandbox) listed() item {
	if sb.item == nil {
		sb.item = encode(&criv1.ListPodSandboxResponse{Items: []*criv1.PodSandbox{{
			Id: sb.id, Metadata: sb.config.GetMetadata(), State: sb.criState(), CreatedAt: sb.created,
			Labels: sb.config.GetLabels(), Annotations: sb.config.GetAnnotations(), RuntimeHandler: sb.handler,
		}}})
	}
	return sb.item
}

// listed is the container as an entry of a list. In the answers of ListContainers and
// StreamContainers it has the same number. mu is held.
func (c *container) listed() item {
	if c.item == nil {
		c.item = encode(&criv1.ListContainersResponse{Containers: []*criv1.Container{{
			Id: c.id, PodSandboxId: c.sandbox.id, Metadata: c.config.GetMetadata(), Image: c.config.GetImage(),
			ImageRef: c.imageID, ImageId: c.imageID, State: c.state, CreatedAt: c.created,
			Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		}}})
	}
	return c.item
}

// setState changes the container's state. mu is held.
func (c *container) setState(st criv1.ContainerState) { c.state, c.item = st, nil }
