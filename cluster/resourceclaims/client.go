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

	"github.com/kubeletkit/kubeletkit/resources/dra"
)

// timeout is the deadline of a request.
const timeout = 10 * time.Second

// Client reads claims and removes slices. Make one with [New]. It is safe for concurrent use.
type Client struct {
	client   kubernetes.Interface
	nodeName string
}

var (
	_ dra.Claims = (*Client)(nil)
	_ dra.Slices = (*Client)(nil)
)

// New returns a client for a node. It makes no request.
func New(client kubernetes.Interface, nodeName string) (*Client, error) {
	if client == nil || nodeName == "" {
		return nil, errors.New("resourceclaims: the client and the name of the node are required")
	}
	return &Client{client, nodeName}, nil
}

// Claim implements [dra.Claims].
func (c *Client) Claim(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return c.client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

// RemoveSlices implements [dra.Slices].
func (c *Client) RemoveSlices(ctx context.Context, driver string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	selector := fields.Set{resourceapi.ResourceSliceSelectorNodeName: c.nodeName}
	if driver != "" {
		selector[resourceapi.ResourceSliceSelectorDriver] = driver
	}
	err := c.client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: selector.String()})
	if apierrors.IsNotFound(err) { // of an API server without the API, too
		return nil
	}
	return err
}
