package fake

import (
	"slices"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// item is the encoded entry of a list of sandboxes or containers, with its field number.
// It is kept until the entry changes: then a list of thousands costs no more than a
// copy, and does not dominate a benchmark of the client.
type item []byte

// encode returns the item of a list response that has one entry.
func encode(list any) item {
	data, err := encoding.GetCodecV2(proto.Name).Marshal(list)
	if err != nil {
		return nil // all CRI messages can be encoded
	}
	defer data.Free()
	return data.Materialize()
}

// join returns items as the unknown fields of a list response. On the wire they do not
// differ from its entries.
func join(items []item) []byte { return slices.Concat(items...) }

// listed returns the sandbox as an entry of a list. Its field number is the same in the
// responses of ListPodSandbox and StreamPodSandboxes. mu is held.
func (sb *sandbox) listed() item {
	if sb.item == nil {
		sb.item = encode(&criv1.ListPodSandboxResponse{Items: []*criv1.PodSandbox{{
			Id: sb.id, Metadata: sb.config.GetMetadata(), State: sb.criState(), CreatedAt: sb.created,
			Labels: sb.config.GetLabels(), Annotations: sb.config.GetAnnotations(), RuntimeHandler: sb.handler,
		}}})
	}
	return sb.item
}

// listed returns the container as an entry of a list. Its field number is the same in
// the responses of ListContainers and StreamContainers. mu is held.
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

// setState sets the state of the container. mu is held.
func (c *container) setState(st criv1.ContainerState) { c.state, c.item = st, nil }
