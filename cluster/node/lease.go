package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/cluster/internal/outage"
	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// IdentityAnnotation is the annotation of the lease with the identity of the agent that
// renews it.
const IdentityAnnotation = "kubeletkit.io/agent"

// identity distinguishes an agent from others.
type identity struct{ machineID, systemUUID, instance string }

func (i identity) String() string { return i.machineID + "/" + i.systemUUID + "/" + i.instance }

// holder returns the other agent that holds the lease, as text; "" if this agent or none holds it.
// The node object is nil if there is none. The time does not matter here.
func holder(lease *coordinationv1.Lease, node *v1.Node, me identity) string {
	if lease == nil || lease.Spec.RenewTime == nil {
		return ""
	}
	if other, ok := lease.Annotations[IdentityAnnotation]; ok {
		if other == me.String() {
			return ""
		}
		return "the agent " + other
	}
	if node == nil {
		return ""
	}
	// A kubelet writes no annotation. If it was on this machine, this agent replaces it.
	info := &node.Status.NodeInfo
	if info.MachineID == "" || info.MachineID == me.machineID && info.SystemUUID == me.systemUUID {
		return ""
	}
	return fmt.Sprintf("a kubelet on the machine %s", info.MachineID)
}

// fresh reports whether the lease has not expired. A time in the future counts as now: clocks
// differ. A lease that was never renewed has expired.
func fresh(lease *coordinationv1.Lease, now time.Time) bool {
	if lease.Spec.RenewTime == nil {
		return false
	}
	duration := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, defaultLeaseSeconds)) * time.Second
	return now.Before(lease.Spec.RenewTime.Add(duration))
}

// renewed returns the lease to write: a new one if old is nil.
func (s *settings) renewed(old *coordinationv1.Lease, node *v1.Node, me identity, now time.Time) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: s.name, Namespace: v1.NamespaceNodeLease}}
	if old != nil {
		lease = old.DeepCopy()
	}
	lease.Spec.HolderIdentity = &s.name
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(s.LeaseDuration / time.Second))
	lease.Spec.RenewTime = &metav1.MicroTime{Time: now}
	setIn(&lease.Annotations, IdentityAnnotation, me.String())
	owners := lease.OwnerReferences[:0]
	for _, o := range lease.OwnerReferences {
		if o.Kind != "Node" || o.UID == node.UID {
			owners = append(owners, o)
		}
	}
	if len(owners) == 0 {
		owners = append(owners, metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID})
	}
	lease.OwnerReferences = owners
	return lease
}

// runLease renews the lease until ctx ends or another agent has taken it.
func (n *Node) runLease(ctx context.Context) error {
	var (
		latest   *coordinationv1.Lease
		failures int
		ended    <-chan struct{} // closed when an outage ends; nil while nothing fails
	)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-ended:
		}
		wait := jittered(n.s.LeaseDuration/4, 0.04)
		ended = outage.Ended(n.leases)
		lease, err := n.renewLease(ctx, latest)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrNodeInUse):
			return err
		case err != nil:
			failures++
			if worthLogging(failures) {
				n.log.Error(err, "Renewing the lease failed", "failures", failures)
			}
			n.heartbeatFailed(failures, err)
			wait, lease = min(wait, retryAfter(failures)), nil
		default:
			failures, ended = 0, nil
		}
		latest = lease
		timer.Reset(wait)
	}
}

// renewLease writes the lease. latest is what was written last; nil: it is read first. It
// returns nil if there is no node object, which would own it.
func (n *Node) renewLease(ctx context.Context, latest *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	node := n.existing()
	if node == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	leases := n.leases.CoordinationV1().Leases(v1.NamespaceNodeLease)
	if latest != nil {
		lease, err := leases.Update(ctx, n.s.renewed(latest, node, n.me, time.Now()), metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return lease, err
		}
	}
	found, err := leases.Get(ctx, n.s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return leases.Create(ctx, n.s.renewed(nil, node, n.me, time.Now()), metav1.CreateOptions{})
	}
	if err != nil {
		return nil, err
	}
	if other, ok := found.Annotations[IdentityAnnotation]; ok && other != n.me.String() && fresh(found, time.Now()) &&
		!found.Spec.RenewTime.Equal(n.expired) {
		return nil, n.inUse("the agent " + other)
	}
	return leases.Update(ctx, n.s.renewed(found, node, n.me, time.Now()), metav1.UpdateOptions{})
}

func (n *Node) inUse(other string) error {
	return fmt.Errorf("node %s: its lease is renewed by %s: %w; stop one of the two, or give this one another name",
		n.s.name, other, ErrNodeInUse)
}

// awaitLease returns when no other agent holds the lease: at once if it has expired, or if this agent
// or none holds it; otherwise when it expires. If the other agent renews it, the error
// wraps [ErrNodeInUse].
func (n *Node) awaitLease(ctx context.Context) error {
	var (
		first *coordinationv1.Lease // what was found first, of another agent
		since time.Time
	)
	for {
		lease, node, err := n.readLease(ctx)
		if err != nil {
			return err
		}
		other := holder(lease, node, n.me)
		switch {
		case other == "":
			return nil
		case first == nil && !fresh(lease, time.Now()):
			return nil
		case first == nil:
			first, since = lease, time.Now()
			n.log.Info("Another agent holds the lease of the node; waiting for it to expire", "holder", other,
				"renewed", lease.Spec.RenewTime.Time)
		case !lease.Spec.RenewTime.Equal(first.Spec.RenewTime):
			return n.inUse(other)
		case time.Since(since) >= time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds,
			defaultLeaseSeconds))*time.Second:
			n.log.Info("The lease of the other agent has expired; taking it over", "holder", other)
			n.expired = lease.Spec.RenewTime
			return nil
		}
		if !flow.Sleep(ctx, 2*time.Second) {
			return ctx.Err()
		}
	}
}

// readLease returns the lease, and the node object if it is needed to find the holder of the lease.
// An object is nil if it does not exist, or may not be read.
func (n *Node) readLease(ctx context.Context) (*coordinationv1.Lease, *v1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	lease, err := n.leases.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(ctx, n.s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the lease: %w", err)
	}
	if _, ok := lease.Annotations[IdentityAnnotation]; ok {
		return lease, nil, nil
	}
	node, err := n.client.CoreV1().Nodes().Get(ctx, n.s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return lease, nil, nil
	}
	return lease, node, err
}
