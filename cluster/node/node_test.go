package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestRegisters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.opts.Labels = map[string]string{"team": "a"}
		s.opts.Taints = []v1.Taint{{Key: "dedicated", Value: "x", Effect: v1.TaintEffectNoSchedule}}
		s.opts.ProviderID = "kind://n"
		s.opts.DeclaredFeatures = func() []string { return []string{"B", "A", "B"} }
		s.start()
		synctest.Wait() // no time passes
		require.NoError(t, s.node.Registered(t.Context()))
		got := s.object()
		assert.Equal(t, "a", got.Labels["team"])
		assert.Equal(t, "n", got.Labels[v1.LabelHostname])
		assert.Equal(t, "linux", got.Labels[v1.LabelOSStable])
		assert.Equal(t, "true", got.Annotations[attachDetach])
		assert.Equal(t, s.opts.Taints, got.Spec.Taints)
		assert.Equal(t, "kind://n", got.Spec.ProviderID)
		assert.Equal(t, []v1.NodeAddress{{Type: "InternalIP", Address: "192.0.2.1"}, {Type: "Hostname", Address: "n"}},
			got.Status.Addresses)
		assert.Equal(t, "containerd://v2.1.4", got.Status.NodeInfo.ContainerRuntimeVersion)
		assert.Equal(t, DefaultKubeletVersion, got.Status.NodeInfo.KubeletVersion)
		assert.Equal(t, "m1", got.Status.NodeInfo.MachineID)
		assert.Equal(t, []string{"A", "B"}, got.Status.DeclaredFeatures, "sorted, each once")
		assert.Equal(t, "8Gi", got.Status.Capacity.Memory().String())
		ready := condition(got.Status.Conditions, v1.NodeReady)
		assert.Equal(t, "KubeletReady", ready.Reason)
		assert.Equal(t, v1.NodeReady, got.Status.Conditions[len(got.Status.Conditions)-1].Type,
			"last, as kubelet has it")
		assert.Equal(t, got.Name, s.node.Current().Name)
		assert.Equal(t, []string{"Normal Starting", "Normal NodeHasSufficientMemory", "Normal NodeHasNoDiskPressure",
			"Normal NodeHasSufficientPID"}, s.takeEvents())

		lease, err := s.api.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(), "n", metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, "n", *lease.Spec.HolderIdentity)
		assert.Equal(t, int32(40), *lease.Spec.LeaseDurationSeconds)
		assert.Equal(t, []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: got.UID}},
			lease.OwnerReferences)
		require.NoError(t, s.stop())
	})
}

// A node to which nothing happens renews its lease and reports once in five minutes.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		s.after(5 * time.Minute) // the first report is spread
		before := s.object()
		s.take()
		s.after(time.Hour)
		calls := s.take()
		patches, renewals := count(calls, "patch nodes"), count(calls, "update leases")
		assert.InDelta(t, 12, patches, 1)
		assert.InDelta(t, 353, renewals, 10)
		assert.Len(t, calls, patches+renewals, "nothing else")
		after := s.object()
		ready, earlier := condition(after.Status.Conditions, v1.NodeReady),
			condition(before.Status.Conditions, v1.NodeReady)
		assert.Equal(t, earlier.LastTransitionTime.UTC(), ready.LastTransitionTime.UTC())
		assert.Greater(t, ready.LastHeartbeatTime.Sub(earlier.LastHeartbeatTime.Time), 50*time.Minute)
		require.NoError(t, s.stop())
	})
}

func TestReadyIsReportedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.health.set(errors.New("container runtime is down"))
		s.start()
		s.after(time.Second)
		ready := condition(s.object().Status.Conditions, v1.NodeReady)
		assert.Equal(t, v1.ConditionFalse, ready.Status)
		assert.Equal(t, "KubeletNotReady", ready.Reason)
		assert.Equal(t, "container runtime is down", ready.Message)
		s.takeEvents()

		s.health.set(nil)
		s.after(100 * time.Millisecond)
		assert.Equal(t, v1.ConditionTrue, condition(s.object().Status.Conditions, v1.NodeReady).Status,
			"without a call")
		assert.Equal(t, []string{"Normal NodeReady"}, s.takeEvents())

		s.after(2 * time.Second)
		s.health.set(errors.New("PLEG is not healthy"))
		s.after(time.Second)
		assert.Equal(t, v1.ConditionFalse, condition(s.object().Status.Conditions, v1.NodeReady).Status)
		assert.Equal(t, []string{"Normal NodeNotReady"}, s.takeEvents())
		require.NoError(t, s.stop())
	})
}

// A message that is another one at each look is reported every ten seconds.
func TestMessagesThatAlwaysChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		var looks atomic.Int64
		s.opts.ReadyChecks = []func() error{func() error { return fmt.Errorf("look %d", looks.Add(1)) }}
		s.start()
		s.after(5 * time.Second)
		assert.Greater(t, looks.Load(), int64(20))
		assert.LessOrEqual(t, count(s.take(), "patch nodes"), 1)
		for range 3 {
			s.after(10 * time.Second)
			assert.Equal(t, 1, count(s.take(), "patch nodes"))
		}
		require.NoError(t, s.stop())
	})
}

// An older API server drops the fields that it does not know.
func TestFieldsThatTheServerDropsAreNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.opts.DeclaredFeatures = func() []string { return []string{"A"} }
		react := clienttesting.ObjectReaction(s.api.Tracker())
		s.api.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, apiruntime.Object, error) {
			s.mu.Lock()
			s.calls = append(s.calls, "patch nodes")
			s.mu.Unlock()
			patch := a.(clienttesting.PatchActionImpl)
			patch.Patch = bytes.ReplaceAll(patch.Patch, []byte("declaredFeatures"), []byte("unknown"))
			return react(patch)
		})
		s.api.PrependReactor("create", "nodes", func(a clienttesting.Action) (bool, apiruntime.Object, error) {
			a.(clienttesting.CreateAction).GetObject().(*v1.Node).Status.DeclaredFeatures = nil
			return false, nil, nil
		})
		s.start()
		s.after(30 * time.Second)
		require.Empty(t, s.object().Status.DeclaredFeatures)
		s.take()
		s.after(time.Minute)
		assert.NotContains(t, s.take(), "patch nodes")
		s.health.set(errors.New("no runtime"))
		s.after(15 * time.Second)
		assert.Equal(t, v1.ConditionFalse, condition(s.object().Status.Conditions, v1.NodeReady).Status,
			"what has changed is reported")
		s.take()
		s.after(time.Minute)
		assert.NotContains(t, s.take(), "patch nodes")
		require.NoError(t, s.stop())
	})
}

// A server that keeps the old boot ID does not cause an event with each report.
func TestRebootedIsOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, existingNode())
		react := clienttesting.ObjectReaction(s.api.Tracker())
		s.api.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, apiruntime.Object, error) {
			patch := a.(clienttesting.PatchActionImpl)
			patch.Patch = bytes.ReplaceAll(patch.Patch, []byte("bootID"), []byte("unknown"))
			return react(patch)
		})
		s.start()
		s.after(30 * time.Minute)
		require.NoError(t, s.stop())
		assert.Equal(t, "b0", s.object().Status.NodeInfo.BootID)
		assert.Equal(t, 1, count(s.takeEvents(), "Warning Rebooted"))
	})
}

func existingNode() *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "old", ResourceVersion: "5",
			Labels: map[string]string{v1.LabelArchStable: "pdp11", "role": "db"}},
		Spec: v1.NodeSpec{Unschedulable: true, PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24"},
			Taints: []v1.Taint{{Key: "kept", Effect: v1.TaintEffectNoExecute}}},
		Status: v1.NodeStatus{
			NodeInfo:         v1.NodeSystemInfo{MachineID: "m1", SystemUUID: "u1", BootID: "b0"},
			VolumesInUse:     []v1.UniqueVolumeName{"v"},
			VolumesAttached:  []v1.AttachedVolume{{Name: "v"}},
			DeclaredFeatures: []string{"OfAnotherAgent"},
			Capacity:         v1.ResourceList{"example.com/gpu": *quantity(2), "hugepages-1Gi": *quantity(1 << 30)},
			Conditions: []v1.NodeCondition{
				{Type: v1.NodeNetworkUnavailable, Status: v1.ConditionFalse, Reason: "CalicoIsUp"},
				{Type: v1.NodeReady, Status: v1.ConditionUnknown, Reason: "NodeStatusUnknown"},
			},
		},
	}
}

func TestAdopts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, existingNode())
		s.versions = true
		s.opts.Taints = []v1.Taint{{Key: "new", Effect: v1.TaintEffectNoSchedule}}
		s.opts.Labels = map[string]string{"team": "a", v1.LabelInstanceTypeStable: "large"}
		s.start()
		synctest.Wait()
		got := s.object()
		assert.Equal(t, "db", got.Labels["role"])
		assert.NotEqual(t, "pdp11", got.Labels[v1.LabelArchStable])
		assert.Equal(t, "large", got.Labels[v1.LabelInstanceTypeStable], "a default label")
		assert.NotContains(t, got.Labels, "team", "other labels are set when the node is created")
		assert.Empty(t, got.Status.DeclaredFeatures)
		assert.Equal(t, "kept", got.Spec.Taints[0].Key)
		assert.Len(t, got.Spec.Taints, 1)
		assert.True(t, got.Spec.Unschedulable)
		assert.Equal(t, []v1.UniqueVolumeName{"v"}, got.Status.VolumesInUse)
		assert.Len(t, got.Status.VolumesAttached, 1)
		for _, list := range []v1.ResourceList{got.Status.Capacity, got.Status.Allocatable} {
			require.Contains(t, list, v1.ResourceName("example.com/gpu"))
			assert.Zero(t, gpus(list), "no source has it, so the devices may be gone")
		}
		assert.NotContains(t, got.Status.Capacity, v1.ResourceName("hugepages-1Gi"),
			"the machine has no such pages any more")
		assert.Equal(t, "CalicoIsUp", condition(got.Status.Conditions, v1.NodeNetworkUnavailable).Reason)
		assert.Equal(t, v1.ConditionTrue, condition(got.Status.Conditions, v1.NodeReady).Status)
		assert.Equal(t, []string{"get leases", "create nodes", "get nodes", "patch nodes"}, s.take()[:4])
		events := s.takeEvents()
		assert.Contains(t, events, "Warning Rebooted")
		assert.Contains(t, events, "Normal NodeReady")
		assert.Contains(t, events, "Normal NodeNotSchedulable")
		require.NoError(t, s.stop())
	})
}

// Extended resources that a source has are never 0 at adoption. Those that another client sets
// afterwards stay.
func TestExtendedResourcesOfAnAdoptedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		existing := existingNode()
		existing.Status.Capacity["example.com/fpga"] = *quantity(4)
		existing.Status.Capacity["storage.kubernetes.io/slots"] = *quantity(5)
		s := newScene(t, existing)
		s.versions = true
		s.machine.capacity["example.com/fpga"] = *quantity(3)
		s.start()
		synctest.Wait()
		got := s.object()
		amount := func(list v1.ResourceList, name v1.ResourceName) int64 { q := list[name]; return q.Value() }
		assert.Equal(t, int64(3), amount(got.Status.Capacity, "example.com/fpga"))
		assert.Equal(t, int64(3), amount(got.Status.Allocatable, "example.com/fpga"))
		assert.Equal(t, int64(5), amount(got.Status.Capacity, "storage.kubernetes.io/slots"),
			"not an extended resource")
		assert.Zero(t, gpus(got.Status.Allocatable))

		_, err := s.api.CoreV1().Nodes().Patch(t.Context(), "n", types.MergePatchType,
			[]byte(`{"status":{"capacity":{"example.com/gpu":"2"}}}`), metav1.PatchOptions{}, "status")
		require.NoError(t, err)
		s.after(10 * time.Minute)
		got = s.object()
		assert.Equal(t, int64(2), gpus(got.Status.Capacity))
		assert.Equal(t, int64(2), gpus(got.Status.Allocatable))
		require.NoError(t, s.stop())
	})
}

// What others change in the status is repaired within two seconds, what belongs to them is not.
func TestRepairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		s.after(time.Minute)
		s.take()
		node := s.object().DeepCopy()
		condition(node.Status.Conditions, v1.NodeReady).Status = v1.ConditionUnknown
		node.Status.Conditions = append(node.Status.Conditions, v1.NodeCondition{Type: "KernelDeadlock",
			Status: v1.ConditionFalse})
		node.Labels["role"] = "db"
		node.ResourceVersion = "2000"
		_, err := s.api.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
		require.NoError(t, err)
		s.after(2 * time.Second)
		got := s.object()
		assert.Equal(t, v1.ConditionTrue, condition(got.Status.Conditions, v1.NodeReady).Status)
		assert.NotNil(t, condition(got.Status.Conditions, "KernelDeadlock"))
		assert.Equal(t, "db", got.Labels["role"])
		require.NoError(t, s.stop())
	})
}

func TestSurvivesOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.setDown(true)
		s.start()
		s.after(10 * time.Minute)
		assert.Nil(t, s.node.Current())
		s.setDown(false)
		s.after(7 * time.Second)
		require.NotNil(t, s.node.Current())

		s.setDown(true)
		s.after(10 * time.Minute)
		s.mu.Lock()
		assert.NotZero(t, s.conns, "half-open connections are closed")
		s.mu.Unlock()
		s.health.set(errors.New("disk on fire"))
		s.after(time.Minute)
		s.setDown(false)
		s.after(8 * time.Second)
		assert.Equal(t, "disk on fire", condition(s.object().Status.Conditions, v1.NodeReady).Message)
		require.NoError(t, s.stop())
	})
}

// As with kubelet, a node object that somebody deletes is not created again; one that
// somebody else creates is used.
func TestDeletedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		s.after(time.Minute)
		nodes := s.api.CoreV1().Nodes()
		gone := s.object().DeepCopy()
		gone.ResourceVersion = "3000" // the version of a deletion is that of the event
		_, err := nodes.Update(t.Context(), gone, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.NoError(t, nodes.Delete(t.Context(), "n", metav1.DeleteOptions{}))
		synctest.Wait()
		s.node.lost("3001") // the tracker of the fake has no versions
		s.take()
		s.after(10 * time.Minute)
		assert.Empty(t, s.take())
		_, err = nodes.Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "another",
			ResourceVersion: "4000"}}, metav1.CreateOptions{})
		require.NoError(t, err)
		s.after(12 * time.Second)
		assert.NotEmpty(t, s.object().Status.Conditions)
		assert.Equal(t, "another", string(s.node.Current().UID))
		lease, err := s.api.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(), "n", metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, "another", string(lease.OwnerReferences[0].UID))
		require.NoError(t, s.stop())
	})
}

func TestTwoAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		s.after(time.Minute)

		second := &scene{t: t, api: s.api, machine: testMachine(), health: &health{}, opts: s.opts}
		second.opts.Instance = "/var/lib/b"
		n, err := New(s.api, "n", second.opts)
		require.NoError(t, err)
		err = n.Run(t.Context())
		require.ErrorIs(t, err, ErrNodeInUse)
		require.ErrorContains(t, err, "/var/lib/a")
		assert.Nil(t, n.Current())

		// When the first one is gone, a third one gets the node after the lease has expired.
		require.NoError(t, s.stop())
		third := &scene{t: t, api: s.api, opts: second.opts}
		third.start()
		s.after(5 * time.Second)
		assert.Nil(t, third.node.Current())
		s.after(40 * time.Second)
		assert.NotNil(t, third.node.Current())

		// It is restarted, and has the node at once.
		require.NoError(t, third.stop())
		third.start()
		synctest.Wait()
		assert.NotNil(t, third.node.Current())
		require.NoError(t, third.stop())
	})
}

func TestRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		synctest.Wait()
		require.ErrorIs(t, s.node.Run(t.Context()), runtime.ErrAlreadyRunning)
		require.NoError(t, s.stop())
	})
}

func TestNoRegister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.opts.NoRegister = true
		s.start()
		s.after(time.Minute)
		assert.Nil(t, s.node.Current())
		assert.Zero(t, count(s.take(), "create nodes"))
		_, err := s.api.CoreV1().Nodes().Create(t.Context(), existingNode(), metav1.CreateOptions{})
		require.NoError(t, err)
		s.after(7 * time.Second)
		assert.NotNil(t, s.node.Current())
		require.NoError(t, s.stop())
	})
}

func TestNew(t *testing.T) {
	_, err := New(nil, "Bad_Name", Options{LeaseDuration: 1500 * time.Millisecond, ReportFrequency: -1,
		Labels: map[string]string{"a b": "c"}, EvictionHard: map[string]string{"memory.available": "x"}})
	for _, want := range []string{"no client", "Bad_Name", "whole seconds", "ReportFrequency", "label a b",
		"evictionHard memory.available"} {
		require.ErrorContains(t, err, want)
	}
}

// The addresses of pods go to the runtime once, and again until it has taken them.
func TestPodCIDR(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, existingNode())
		var got []string
		s.opts.SetPodCIDR = func(_ context.Context, cidr string) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if got = append(got, cidr); len(got) == 1 {
				return errors.New("not yet")
			}
			return nil
		}
		s.start()
		s.after(time.Minute)
		require.NoError(t, s.stop())
		assert.Equal(t, []string{"10.1.0.0/24", "10.1.0.0/24"}, got)
	})
}

// counted counts the looks at the status.
type counted struct {
	*machine
	looks atomic.Int32
}

func (c *counted) NodeInfo(ctx context.Context) (v1.NodeSystemInfo, error) {
	c.looks.Add(1)
	return c.machine.NodeInfo(ctx)
}

// What others change is looked at soon; an own report is no such change.
func TestOwnReportsAreNoChangesByOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		info := &counted{machine: s.machine}
		s.opts.Info = info
		server := apitest.New()
		n, err := New(server.Client(), "n", s.opts)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx) }()
		s.after(5 * time.Second)
		info.looks.Store(0)
		s.after(time.Minute)
		assert.Equal(t, int32(6), info.looks.Load())

		s.health.set(errors.New("disk on fire"))
		s.after(5 * time.Second)
		assert.Equal(t, int32(7), info.looks.Load(), "one for the check of readiness, which is reported")

		node := server.Object("nodes", "", "n").(*v1.Node)
		node.Status.Conditions = nil
		server.Put("nodes", node)
		s.after(time.Second)
		assert.Equal(t, int32(8), info.looks.Load())
		assert.NotEmpty(t, server.Object("nodes", "", "n").(*v1.Node).Status.Conditions)
		cancel()
		require.NoError(t, <-done)
	})
}

// A change of the spec that arrives while a report is under way is noticed at once.
func TestCordonedDuringAReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		server := apitest.New()
		n, err := New(server.Client(), "n", s.opts)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx) }()
		s.after(time.Minute)
		s.takeEvents()
		server.Before(func(req *apitest.Request) (*http.Response, error) {
			if req.Verb == "patch" {
				server.Before(nil)
				node := server.Object("nodes", "", "n").(*v1.Node)
				node.Spec.Unschedulable = true
				server.Put("nodes", node)
			}
			return nil, nil
		})
		s.health.set(errors.New("down"))
		s.after(2 * time.Second)
		assert.Equal(t, []string{"Normal NodeNotReady", "Normal NodeNotSchedulable"}, s.takeEvents())
		cancel()
		require.NoError(t, <-done)
	})
}
