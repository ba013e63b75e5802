package storage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/cluster/internal/outage"
	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// A write that conflicts with another one is repeated, in all attempts, after 10 ms, 50 ms and 250 ms, as in kubelet.
const (
	attempts    = 4
	firstDelay  = 10 * time.Millisecond
	delayFactor = 5
)

// errOtherNode means that a CSINode object of another node object was deleted.
var errOtherNode = errors.New("deleted it")

// write makes a change in both objects, in kubelet's order.
func (p *publisher) write(ctx context.Context, uid types.UID, c *change) error {
	if c.driver == nil {
		if err := p.removeFromCSINode(ctx, c.name); err != nil {
			return fmt.Errorf("error uninstalling CSI driver from CSINode object: %w", err)
		}
		if err := p.updateNode(ctx, func(node *v1.Node) (nodeChange, error) {
			return withdraw(node, c.name)
		}); err != nil {
			return fmt.Errorf("error removing CSI driver node info from Node object: %w", err)
		}
		return nil
	}
	if err := p.updateNode(ctx, func(node *v1.Node) (nodeChange, error) {
		return publish(node, *c.driver)
	}); err != nil {
		return fmt.Errorf("error updating Node object with CSI driver node info: %w", err)
	}
	set := func(object *storagev1.CSINode) bool { return setDriver(object, *c.driver) }
	err := p.updateCSINode(ctx, uid, set)
	if apierrors.IsInvalid(err) {
		// In an object that has the driver, the API lets only its number of volumes change, and not even that before
		// Kubernetes 1.35. Kubelet removes the driver after the error, too, and it registers again.
		if err = p.removeFromCSINode(ctx, c.name); err == nil {
			err = p.updateCSINode(ctx, uid, set)
		}
	}
	if err != nil {
		return fmt.Errorf("error updating CSINode object with CSI driver node info: %w", err)
	}
	return nil
}

// updateNode patches the node object.
func (p *publisher) updateNode(ctx context.Context, change func(*v1.Node) (nodeChange, error)) error {
	nodes := p.client.CoreV1().Nodes()
	return repeated(ctx, func(ctx context.Context) error {
		node, err := nodes.Get(ctx, p.node, metav1.GetOptions{})
		if err != nil {
			return answer(err)
		}
		c, err := change(node)
		if err != nil {
			return err
		}
		patch, err := c.patch()
		if err != nil || patch == nil {
			return err
		}
		// As kubelet does: a node may change its metadata with its status.
		_, err = nodes.Patch(ctx, p.node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return answer(err)
	})
}

// updateCSINode changes the CSINode object of the node object with the UID, and creates it if there is none. change
// reports whether it has changed the object; nil: it is only created, or its annotation is set.
func (p *publisher) updateCSINode(ctx context.Context, uid types.UID, change func(*storagev1.CSINode) bool) error {
	if change == nil {
		change = func(*storagev1.CSINode) bool { return false }
	}
	objects := p.client.StorageV1().CSINodes()
	return repeated(ctx, func(ctx context.Context) error {
		object, err := objects.Get(ctx, p.node, metav1.GetOptions{})
		switch {
		case missing(err):
			object = newCSINode(p.node, uid)
			change(object)
			_, err = objects.Create(ctx, object, metav1.CreateOptions{})
			return answer(err)
		case err != nil:
			return answer(err)
		}
		if other := owner(object, p.node, uid); other != uid {
			return p.deleteCSINode(ctx, object, other, uid)
		}
		migrated := setMigrated(object)
		if !change(object) && !migrated {
			return nil
		}
		_, err = objects.Update(ctx, object, metav1.UpdateOptions{})
		return answer(err)
	})
}

// deleteCSINode deletes a CSINode object that another node object owns. It returns an error, so that the next attempt
// creates it.
func (p *publisher) deleteCSINode(ctx context.Context, object *storagev1.CSINode, other, uid types.UID) error {
	err := p.client.StorageV1().CSINodes().Delete(ctx, p.node, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &object.UID}})
	if err != nil && !missing(err) {
		return fmt.Errorf("error deleting existing CSINode %q: %w", p.node, answer(err))
	}
	return fmt.Errorf("CSINode %q was owned by different node (oldNodeID=%q, newNodeID=%q), %w", p.node, other, uid,
		errOtherNode)
}

// removeFromCSINode removes a driver from the CSINode object, if there is one.
func (p *publisher) removeFromCSINode(ctx context.Context, name string) error {
	objects := p.client.StorageV1().CSINodes()
	return repeated(ctx, func(ctx context.Context) error {
		object, err := objects.Get(ctx, p.node, metav1.GetOptions{})
		if missing(err) {
			return nil
		}
		if err != nil {
			return answer(err)
		}
		if !removeDriver(object, name) {
			return nil
		}
		_, err = objects.Update(ctx, object, metav1.UpdateOptions{})
		return answer(err)
	})
}

// answer adds [errNoAnswer] to the error of a request without an answer.
func answer(err error) error {
	if err != nil && !outage.Answered(err) {
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return err
}

// repeated calls f until it returns nil, or an error that is no conflict. Each call has a deadline.
func repeated(ctx context.Context, f func(context.Context) error) error {
	for attempt, delay := 1, firstDelay; ; attempt, delay = attempt+1, delayFactor*delay {
		err := func() error {
			call, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			return f(call)
		}()
		conflict := apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, errOtherNode)
		if !conflict || attempt == attempts {
			return err
		}
		if !flow.Sleep(ctx, delay+rand.N(delay/10)) {
			return context.Cause(ctx)
		}
	}
}
