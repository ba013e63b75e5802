package resourceclaims

import (
	"context"
	"errors"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
)

// timeout is the deadline of a request.
const timeout = 10 * time.Second

// Client reads claims and removes slices: it is Claims and Slices of package node/dra. Make one with [New]. It is safe
// for concurrent use.
type Client struct {
	client   kubernetes.Interface
	nodeName string
}

// New returns a client for a node. It makes no request.
func New(client kubernetes.Interface, nodeName string) (*Client, error) {
	if client == nil || nodeName == "" {
		return nil, errors.New("resourceclaims: the client and the name of the node are required")
	}
	return &Client{client, nodeName}, nil
}

// Claim returns the claim as the API server has it now. It implements Claims of package node/dra.
func (c *Client) Claim(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return c.client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

// RemoveSlices removes the slices of the node that the driver has published, or all of the node if the name is empty.
// It implements Slices of package node/dra.
func (c *Client) RemoveSlices(ctx context.Context, driver string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	selector := fields.Set{resourceapi.ResourceSliceSelectorNodeName: c.nodeName}
	if driver != "" {
		selector[resourceapi.ResourceSliceSelectorDriver] = driver
	}
	err := c.client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{FieldSelector: selector.String()})
	if apierrors.IsNotFound(err) { // of an API server without the API, too
		return nil
	}
	return err
}
