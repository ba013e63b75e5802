package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/cluster/internal/outage"
	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// join waits until no other agent has the name of the node, and registers the node. It tries
// until it succeeds, ctx ends, or the error wraps [ErrNodeInUse].
func (n *Node) join(ctx context.Context) error {
	if n.s.Available != nil {
		if err := n.s.Available(ctx); err != nil {
			return err
		}
	}
	for failures := 1; ; failures++ {
		err := n.awaitLease(ctx)
		if err == nil {
			err = n.register(ctx)
		}
		if err == nil {
			close(n.joined)
			return nil
		}
		if ctx.Err() != nil || errors.Is(err, ErrNodeInUse) {
			return err
		}
		if worthLogging(failures) {
			n.log.Error(err, "Registering the node failed", "failures", failures)
		}
		if !flow.Sleep(ctx, retryAfter(failures)) {
			return ctx.Err()
		}
	}
}

// register creates the node object, or adopts it if it exists.
func (n *Node) register(ctx context.Context) error {
	o := n.observe(ctx)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	nodes := n.client.CoreV1().Nodes()
	if !n.s.NoRegister {
		node := n.s.initial()
		events := o.setStatus(node, &n.s, time.Now().Truncate(time.Second))
		n.s.Startup.Registering()
		created, err := nodes.Create(ctx, node, metav1.CreateOptions{})
		switch {
		case err == nil:
			n.log.Info("Registered the node", "node", n.s.name)
			n.s.Startup.Registered()
			n.learn(created)
			n.reported(node, created, events, true)
			return nil
		case apierrors.IsAlreadyExists(err):
		case apierrors.IsForbidden(err) && !n.s.GetOnExistsOnly: // to create one; it may exist
			n.log.Error(err, "Creating the node object is forbidden")
		default:
			return fmt.Errorf("creating the node object: %w", err)
		}
	}
	existing, err := nodes.Get(ctx, n.s.name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the node object: %w", err)
	}
	n.log.Info("Adopting the node object that exists", "node", n.s.name)
	n.learn(existing)
	if n.settle(ctx, existing) {
		o = n.observe(ctx)
	}
	desired := existing.DeepCopy()
	if !n.s.NoRegister {
		n.s.repair(desired)
	}
	return n.write(ctx, existing, desired, o)
}

// settle waits up to settleTime until the node can run pods, if the object that it adopts is ready:
// the checks of an agent that has just started may not have been made yet, and a node that is not
// ready for a moment takes its pods out of all services. It reports whether it has waited.
func (n *Node) settle(ctx context.Context, existing *v1.Node) bool {
	ready := condition(existing.Status.Conditions, v1.NodeReady)
	if ready == nil || ready.Status != v1.ConditionTrue || n.passed {
		return false
	}
	for until := time.Now().Add(settleTime); time.Now().Before(until) && len(n.problems()) > 0; {
		if !flow.Sleep(ctx, settlePeriod) {
			break
		}
	}
	return true
}

// runReports reports the status until ctx ends.
func (n *Node) runReports(ctx context.Context) {
	var (
		failures int
		started  = time.Now()
		next     = started // when the timer fires
		timer    = time.NewTimer(0)
		checks   = time.NewTicker(readyPeriod)
		ended    <-chan struct{} // closed when an outage ends; nil while nothing fails
	)
	defer timer.Stop()
	defer checks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.touched:
			if v := n.Current().ResourceVersion; v != "" && v == n.written {
				continue // our own report
			}
			if at := time.Now().Add(watchDelay); at.Before(next) {
				next = at
				timer.Reset(watchDelay)
			}
			continue
		case <-checks.C:
			if (len(n.problems()) == 0) == n.passed {
				continue
			}
		case <-n.kick:
		case <-ended:
		case <-timer.C:
		}
		wait := n.s.UpdateFrequency
		ended = outage.Ended(n.client)
		ready, err := n.report(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failures++
			if worthLogging(failures) {
				n.log.Error(err, "Reporting the status of the node failed", "failures", failures)
			}
			n.heartbeatFailed(failures, err)
			if ended == nil {
				wait = min(wait, retryAfter(failures))
			} else { // another request notices the end of an outage
				wait = jittered(min(wait, flow.Backoff{Min: 2 * fastPeriod, Max: wait}.After(failures)), 0.5)
			}
		default:
			failures, ended = 0, nil
			if ready {
				n.s.Startup.Ready()
				started = time.Time{} // the fast looks are over
			} else if time.Since(started) < fastDuration {
				wait = min(wait, fastPeriod)
			}
		}
		next = time.Now().Add(wait)
		timer.Reset(wait)
	}
}

// report computes the status, and writes it if it changed or the report is due. It returns
// whether the node is ready.
func (n *Node) report(ctx context.Context) (ready bool, err error) {
	current := n.existing()
	if current == nil {
		return true, nil
	}
	o := n.observe(ctx)
	n.noteSchedulable(current)
	n.handPodCIDR(ctx, current)
	desired := current.DeepCopy()
	if err := func() error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return n.write(ctx, current, desired, o)
	}(); err != nil {
		return false, err
	}
	c := condition(desired.Status.Conditions, v1.NodeReady)
	return c != nil && c.Status == v1.ConditionTrue, nil
}

// write patches the node object so that it has the status that was observed, if it differs or
// the report is due. It changes desired.
func (n *Node) write(ctx context.Context, current, desired *v1.Node, o *observed) error {
	now := time.Now().Truncate(time.Second) // as the API keeps it
	keepLabels(desired)
	events := o.setStatus(desired, &n.s, now)
	differs := changed(current, desired) && !n.refused.is(current, desired)
	if differs && time.Since(n.lastReport) < n.s.UpdateFrequency && onlyMessages(current, desired) {
		return nil // a message may change with each look
	}
	if !differs && time.Now().Before(n.lastReport.Add(n.reportAfter)) {
		return nil
	}
	patch, err := patchOf(current, desired)
	if err != nil {
		return err
	}
	updated, err := n.client.CoreV1().Nodes().Patch(ctx, n.s.name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("patching the status: %w", err)
	}
	if old, id := current.Status.NodeInfo.BootID, desired.Status.NodeInfo.BootID; old != "" && id != "" &&
		old != id && !n.rebooted {
		n.rebooted = true
		n.emit(v1.EventTypeWarning, "Rebooted", fmt.Sprintf("Node %s has been rebooted, boot id: %s", n.s.name, id))
	}
	n.learn(updated)
	n.reported(desired, updated, events, differs)
	return nil
}

// reported records a report that the server has accepted. updated is the object after it, which
// the watch delivers, too. If it differs from desired, another client has changed it meanwhile, or
// an older server has dropped a field. Then the event of the watch starts another look at the status,
// but not twice in a row for a difference of the status. The spec belongs to other clients, as a
// cordon and the addresses of pods do, so that a difference there always does.
func (n *Node) reported(desired, updated *v1.Node, events []string, differs bool) {
	n.written = updated.ResourceVersion
	other := changed(desired, updated)
	if other && !n.other || !equality.Semantic.DeepEqual(desired.Spec, updated.Spec) {
		n.written = ""
	}
	n.refused = refusal{}
	if other && n.other {
		n.refused = refusal{desired, updated}
	}
	n.other = other
	spread := differs || n.lastReport.IsZero()
	n.lastReport, n.reportAfter = time.Now(), n.s.ReportFrequency
	if spread {
		n.reportAfter = jittered(n.s.ReportFrequency/2, 1)
	}
	for _, reason := range events {
		n.emitStatus(reason)
	}
}

// refusal is a report after which the object was not as desired, as after the report before it: an
// older server drops new fields from each report.
type refusal struct{ desired, got *v1.Node }

// is reports whether the same report would leave the same object again.
func (r refusal) is(current, desired *v1.Node) bool {
	return r.got != nil && !changed(r.got, current) && !changed(r.desired, desired)
}

// handPodCIDR hands the runtime the addresses of pods if they have changed.
func (n *Node) handPodCIDR(ctx context.Context, node *v1.Node) {
	cidr := strings.Join(node.Spec.PodCIDRs, ",")
	if n.s.SetPodCIDR == nil || cidr == "" || cidr == n.podCIDR {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := n.s.SetPodCIDR(ctx, cidr)
	if n.ok("pod CIDR", err) {
		n.podCIDR = cidr
		n.log.Info("The runtime has new addresses for pods", "podCIDR", cidr)
	}
}

// noteSchedulable emits an event when the node was cordoned or uncordoned.
func (n *Node) noteSchedulable(node *v1.Node) {
	if n.unschedulable == node.Spec.Unschedulable {
		return
	}
	n.unschedulable = node.Spec.Unschedulable
	if n.unschedulable {
		n.emitStatus("NodeNotSchedulable")
	} else {
		n.emitStatus("NodeSchedulable")
	}
}

func (n *Node) emitStatus(reason string) {
	n.emit(v1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", n.s.name, reason))
}

// observe reads all sources.
func (n *Node) observe(ctx context.Context) *observed {
	o := &observed{port: n.s.Port, capacity: v1.ResourceList{}, allocatable: v1.ResourceList{}}
	if n.s.Runtime != nil {
		o.runtime = n.s.Runtime()
	} else {
		o.runtime = runtime.Features{Name: "unknown", Version: "Unknown"}
	}
	if info, err := n.s.Info.NodeInfo(ctx); n.ok("facts of the machine", err) {
		o.info = &info
	}
	if addresses, err := n.s.Addresses.NodeAddresses(ctx); n.ok("addresses", err) {
		o.addresses = addresses
	}
	for i, r := range n.s.Resources {
		capacity, allocatable, err := r.NodeResources(ctx)
		n.ok(fmt.Sprintf("resources %d", i), err)
		for name, q := range capacity {
			o.capacity[name] = q
		}
		for name, q := range allocatable {
			o.allocatable[name] = q
		}
	}
	n.mu.Lock()
	o.images = n.images
	n.mu.Unlock()
	for _, conditions := range n.s.Conditions {
		for _, c := range conditions(ctx) {
			if c.Type == v1.NodeReady {
				o.ready = &c
			} else {
				o.conditions = put(o.conditions, c)
			}
		}
	}
	if n.s.VolumesInUse != nil {
		if volumes, known := n.s.VolumesInUse(); known {
			o.volumesInUse = &volumes
		}
	}
	o.missing = n.problems()
	n.passed = len(o.missing) == 0
	return o
}

// problems returns why the node cannot run pods.
func (n *Node) problems() (errs []error) {
	for _, check := range n.s.ReadyChecks {
		if err := check(); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// runImages reads the images until ctx ends, apart from the status: a runtime that does not
// answer delays neither the registration nor the report that the node is not ready.
func (n *Node) runImages(ctx context.Context) {
	if n.s.Images == nil {
		return
	}
	for {
		images, err := n.s.Images.NodeImages(ctx)
		if ctx.Err() != nil {
			return
		}
		if n.ok("images", err) {
			n.mu.Lock()
			news := n.images == nil || !equality.Semantic.DeepEqual(*n.images, images)
			if news {
				n.images = &images
			}
			n.mu.Unlock()
			if news {
				n.Update()
			}
		}
		if !flow.Sleep(ctx, n.s.UpdateFrequency) {
			return
		}
	}
}

// ok logs the error of a source, once for each text of it, and reports whether there is none.
func (n *Node) ok(source string, err error) bool {
	text := ""
	if err != nil {
		text = err.Error()
	}
	n.mu.Lock()
	news := text != n.said[source]
	n.said[source] = text
	n.mu.Unlock()
	if news {
		if err != nil {
			n.log.Error(err, "A part of the node does not work", "part", source)
		}
	}
	return err == nil
}
