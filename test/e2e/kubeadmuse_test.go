package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// use is the load on a cluster while its agent is changed: HTTP requests, a TCP stream, and a
// Deployment that is rolled out again and again. A watch of all pods and these collect failures.
type use struct {
	n       *KubeadmNode
	cancel  context.CancelFunc
	running sync.WaitGroup
	before  map[string]string // see steadyPods

	mu       sync.Mutex
	failures []string
	// young is when the containers have started at the earliest that are new ones for the kubelet that runs. It is
	// zero while this agent runs.
	young time.Time
	// serverEnd is the time at which the test ended the API server. No lease is renewed until it runs again.
	serverEnd time.Time

	counts  map[string]int
	slowest map[string]time.Duration
}

// startUse starts the use of the addresses of an HTTP server and of a TCP server that echoes.
func startUse(t *testing.T, n *KubeadmNode, web, echo string) *use {
	t.Helper()
	Eventually(t, within, "requests", func() error {
		conn, err := n.Net.DialContext(t.Context(), "tcp", web)
		if err == nil {
			conn.Close()
		}
		return err
	})
	ctx, cancel := context.WithCancel(context.Background())
	u := &use{n: n, cancel: cancel, before: steadyPods(t, n), counts: map[string]int{},
		slowest: map[string]time.Duration{}}
	t.Cleanup(func() {
		cancel()
		u.running.Wait()
	})
	u.running.Go(func() { u.request(ctx, web) })
	u.running.Go(func() { u.stream(ctx, echo) })
	u.running.Go(func() { u.watch(ctx) })
	u.running.Go(func() { u.roll(ctx) })
	return u
}

// swapped says that another agent is about to start. A kubelet holds containers that started less
// than 10 s before it for new ones, whose probes have not succeeded yet.
func (u *use) swapped(kubelet bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.young = time.Time{}
	if kubelet {
		u.young = time.Now().Add(-11 * time.Second) // the API has whole seconds
	}
}

// serverEnds notes that the API server is about to end.
func (u *use) serverEnds() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.serverEnd = time.Now()
}

// isYoung reports whether a container of the pod is a new one for the kubelet, see swapped.
func (u *use) isYoung(pod *v1.Pod) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.young.IsZero() && slices.ContainsFunc(pod.Status.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.State.Running != nil && c.State.Running.StartedAt.After(u.young)
	})
}

// check asserts that nothing has failed since the last check.
func (u *use) check(t *testing.T) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	assert.Empty(t, u.failures)
	u.failures = nil
}

// stop ends the use.
func (u *use) stop(t *testing.T) {
	t.Helper()
	u.cancel()
	u.running.Wait()
	u.check(t)
	assert.Equal(t, u.before, steadyPods(t, u.n))
	t.Logf("%v, the slowest %v", u.counts, u.slowest)
}

// steadyPods returns the containers of the pods of the API that are not rolled out, and since when
// they are ready, by the names of the pods.
func steadyPods(t *testing.T, n *KubeadmNode) map[string]string {
	t.Helper()
	pods, err := n.Plane.Client.CoreV1().Pods(metav1.NamespaceAll).List(t.Context(),
		metav1.ListOptions{LabelSelector: "app!=rolling,tier!=control-plane"})
	require.NoError(t, err)
	steady := map[string]string{}
	for _, pod := range pods.Items {
		for _, c := range pod.Status.ContainerStatuses {
			steady[pod.Name] += fmt.Sprintf("%s, restart %d, ", c.ContainerID, c.RestartCount)
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == v1.PodReady {
				steady[pod.Name] += fmt.Sprintf("ready is %s since %s", c.Status, c.LastTransitionTime)
			}
		}
	}
	return steady
}

func (u *use) fail(format string, args ...any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.failures = append(u.failures, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (u *use) done(what string, took time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.counts[what]++
	u.slowest[what] = max(u.slowest[what], took)
}

// every calls fn ten times a second until ctx ends.
func every(ctx context.Context, fn func()) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fn()
		case <-ctx.Done():
			return
		}
	}
}

// request makes requests, each on a connection of its own.
func (u *use) request(ctx context.Context, addr string) {
	client := http.Client{Transport: &http.Transport{DialContext: u.n.Net.DialContext, DisableKeepAlives: true},
		Timeout: 10 * time.Second}
	every(ctx, func() {
		began := time.Now()
		resp, err := client.Get("http://" + addr)
		if err != nil {
			u.fail("request: %v", err)
			return
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			u.fail("request: %v: %s (%v)", resp.Status, body, err)
		}
		u.done("requests", time.Since(began))
	})
}

// stream sends lines on one connection and reads them back.
func (u *use) stream(ctx context.Context, addr string) {
	conn, err := u.n.Net.DialContext(ctx, "tcp", addr)
	if err != nil {
		u.fail("stream: %v", err)
		return
	}
	defer conn.Close()
	lines, i := bufio.NewReader(conn), 0
	every(ctx, func() {
		i++
		began, line := time.Now(), fmt.Sprintf("line %d\n", i)
		conn.SetDeadline(began.Add(10 * time.Second))
		_, err := io.WriteString(conn, line)
		got := ""
		if err == nil {
			got, err = lines.ReadString('\n')
		}
		if err != nil || got != line {
			u.fail("stream: %q, not %q: %v", got, line, err)
		}
		u.done("lines", time.Since(began))
	})
}

// watch compares each state of a pod and of the node with the one before. The API server may be
// away for a while.
func (u *use) watch(ctx context.Context) {
	factory := informers.NewSharedInformerFactory(u.n.Plane.Client, 0)
	for _, informer := range []cache.SharedIndexInformer{factory.Core().V1().Pods().Informer(),
		factory.Core().V1().Nodes().Informer(), factory.Coordination().V1().Leases().Informer()} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
			switch after := after.(type) {
			case *v1.Pod:
				u.comparePods(before.(*v1.Pod), after)
			case *v1.Node:
				if err := nodeReady(after); err != nil && nodeReady(before.(*v1.Node)) == nil && !initializesCSI(after) {
					u.fail("node %v", err)
				}
			case *coordinationv1.Lease:
				u.compareLeases(before.(*coordinationv1.Lease), after)
			}
		}})
		if err != nil {
			u.fail("watch: %v", err)
		}
	}
	factory.StartWithContext(ctx)
	<-ctx.Done()
	factory.Shutdown()
}

// initializesCSI reports whether the node is not ready for the reason of a kubelet that cannot reach the API server
// when it starts, such as one that has restarted it. This agent does not have that reason.
func initializesCSI(node *v1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Message == "CSINode is not yet initialized"
	})
}

// gracePeriod is how long a lease may not be renewed before the controller manager holds the node for lost, by its
// defaults.
const gracePeriod = 50 * time.Second

func (u *use) compareLeases(before, after *coordinationv1.Lease) {
	if after.Namespace != v1.NamespaceNodeLease {
		return
	}
	u.mu.Lock()
	between := u.serverEnd.After(before.Spec.RenewTime.Time) && u.serverEnd.Before(after.Spec.RenewTime.Time)
	u.mu.Unlock()
	if took := after.Spec.RenewTime.Sub(before.Spec.RenewTime.Time); took > gracePeriod && !between {
		u.fail("lease %s: not renewed for %v", after.Name, took)
	}
}

func (u *use) comparePods(before, after *v1.Pod) {
	if before.UID != after.UID || after.Annotations[v1.MirrorPodAnnotationKey] != "" {
		return
	}
	if err := Ready(true)(after); err != nil && Ready(true)(before) == nil && after.DeletionTimestamp == nil &&
		!u.isYoung(after) {
		u.fail("pod %s: %v", after.Name, err)
	}
	if after.DeletionTimestamp != nil {
		// If there is no API server, this agent starts the pods of its checkpoint, also those that
		// were deleted while the kubelet ran, until the API server is back.
		return
	}
	for i := range after.Status.ContainerStatuses {
		c := &after.Status.ContainerStatuses[i]
		was := Status(before, c.Name)
		if restarted(was, c) {
			u.fail("pod %s: container %s, restart %d, was %s", after.Name, c.ContainerID,
				c.RestartCount, was.ContainerID)
		}
	}
}

// restarted reports whether a container that has run was restarted between two statuses. A kubelet that ends cuts
// off the starts under way; each start after that counts as a restart, of a container that has never run.
func restarted(was, is *v1.ContainerStatus) bool {
	if is.RestartCount <= was.RestartCount && (was.ContainerID == "" || is.ContainerID == was.ContainerID) {
		return false
	}
	if neverRan(&was.State) {
		return false
	}
	// The status of the first start may not have been reported before the kubelet ended.
	first := was.RestartCount == 0 && was.State.Running == nil && was.State.Terminated == nil &&
		was.LastTerminationState.Terminated == nil
	cutOff := is.RestartCount == 1 && neverRan(&is.LastTerminationState) &&
		(was.ContainerID == "" || was.ContainerID == is.LastTerminationState.Terminated.ContainerID)
	return !first || !cutOff
}

// neverRan reports whether a container has ended without having been started: containerd then reports
// StartError, no time of a start, and as the end the time at which the start failed.
func neverRan(state *v1.ContainerState) bool {
	end := state.Terminated
	return end != nil && (end.Reason == "StartError" || end.Reason == "ContainerCannotRun") &&
		end.ExitCode == 128 && end.StartedAt.Unix() <= 0 // zero, or 1970
}

// roll rolls the Deployment out, again when that is done. The API server may be away.
func (u *use) roll(ctx context.Context) {
	deployments := u.n.Plane.Client.AppsV1().Deployments("default")
	every(ctx, func() {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		d, err := deployments.Get(ctx, "rolling", metav1.GetOptions{})
		if err != nil || d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas != *d.Spec.Replicas ||
			d.Status.Replicas != *d.Spec.Replicas || d.Status.UnavailableReplicas != 0 {
			return
		}
		patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"generation":"%d"}}}}}`, d.Generation)
		if _, err := deployments.Patch(ctx, "rolling", types.MergePatchType, []byte(patch),
			metav1.PatchOptions{}); err == nil {
			u.done("rollouts", 0)
		}
	})
}
