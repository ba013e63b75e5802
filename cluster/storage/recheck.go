package storage

import (
	"context"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kubeletkit/kubeletkit/cluster/internal/outage"
	"github.com/kubeletkit/kubeletkit/cluster/internal/podsets"
	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/node/volume/csi/csinode"
)

const (
	// recheckDelay is the time from the end of a pod until kept objects are checked: the API server has removed the pod
	// by then, and with it the permission to read its secrets.
	recheckDelay = time.Minute
	// recheckInterval is the time between two checks.
	recheckInterval = 10 * time.Minute
)

// Update takes changes of the pods of the API server: those that are new or have changed, and those that do not exist
// any more. It does not block.
func (s *Storage) Update(changed, removed []*v1.Pod) {
	if ended := podsets.Ended(changed, removed); len(ended) > 0 {
		s.stopWaiting(ended.Has)
		s.recheck.Notify()
	}
}

// Retain takes all pods of the API server on this node. It is called after a complete list: pods may have gone while no
// agent ran. It does not block.
func (s *Storage) Retain(pods []*v1.Pod) {
	active := podsets.Active(pods)
	s.stopWaiting(func(uid types.UID) bool { return !active.Has(uid) })
	s.recheck.Notify()
}

// runRecheck drops kept objects that nothing uses any more, until ctx ends.
func (s *Storage) runRecheck(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.recheck:
		}
		if !flow.Sleep(ctx, recheckDelay) {
			return
		}
		if !s.recheckAttachments() || !s.recheckSecrets(ctx) {
			s.recheck.Notify()
		}
		if !flow.Sleep(ctx, recheckInterval) {
			return
		}
	}
}

// recheckAttachments drops the attachments of volumes that are not attached any more. It returns false if that is not
// known.
func (s *Storage) recheckAttachments() bool {
	old := s.attachments.readBefore(time.Now().Add(-recheckDelay))
	if len(old) == 0 {
		return true
	}
	node := s.known()
	if node == nil {
		return false
	}
	attached := sets.New[string]()
	for _, a := range node.Status.VolumesAttached {
		if driver, handle, ok := csinode.SplitUniqueName(a.Name); ok {
			attached.Insert(csinode.AttachmentName(handle, driver, s.nodeName))
		}
	}
	for _, name := range old {
		if !attached.Has(name) {
			s.attachments.drop(name)
		}
	}
	return true
}

// recheckSecrets drops the secrets that do not exist any more, and those that the API server refuses twice: the node
// authorizer permits the secrets of volumes of pods that are bound to the node, and an API server that has just started
// may not know the pods yet. It returns false if a secret is to be read again.
func (s *Storage) recheckSecrets(ctx context.Context) (done bool) {
	done = true
	for _, key := range s.secrets.readBefore(time.Now().Add(-recheckInterval)) {
		namespace, name, _ := strings.Cut(key, "/")
		call, cancel := context.WithTimeout(ctx, requestTimeout)
		secret, err := s.client.CoreV1().Secrets(namespace).Get(call, name, metav1.GetOptions{})
		cancel()
		switch {
		case err == nil:
			secret.SetManagedFields(nil)
			s.secrets.put(key, secret)
		case missing(err), apierrors.IsForbidden(err) && s.secrets.refuse(key):
			s.secrets.drop(key)
		case !outage.Answered(err):
			return false
		default:
			done = false
		}
	}
	return done
}
