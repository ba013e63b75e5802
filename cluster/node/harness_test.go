package node

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// machine is a machine of fixed facts.
type machine struct {
	info     v1.NodeSystemInfo
	capacity v1.ResourceList
}

func (m *machine) NodeInfo(context.Context) (v1.NodeSystemInfo, error) { return m.info, nil }

func (m *machine) NodeResources(context.Context) (capacity, allocatable v1.ResourceList, err error) {
	return m.capacity, nil, nil
}

// addresses are fixed addresses.
type addresses []v1.NodeAddress

func (a addresses) NodeAddresses(context.Context) ([]v1.NodeAddress, error) { return a, nil }

func testMachine() *machine {
	return &machine{
		info: v1.NodeSystemInfo{MachineID: "m1", SystemUUID: "u1", BootID: "b1", KernelVersion: "6.1",
			OSImage: "Debian"},
		capacity: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi"),
			v1.ResourcePods:             resource.MustParse("110"),
			v1.ResourceEphemeralStorage: resource.MustParse("100Gi"), "hugepages-2Mi": resource.MustParse("0"),
		},
	}
}

// health is a check of readiness that tests change.
type health struct {
	mu  sync.Mutex
	err error
}

func (h *health) set(err error) { h.mu.Lock(); defer h.mu.Unlock(); h.err = err }
func (h *health) get() error    { h.mu.Lock(); defer h.mu.Unlock(); return h.err }

// scene is a node and an API server.
type scene struct {
	t       *testing.T
	api     *apitest.Clientset
	machine *machine
	health  *health
	opts    Options
	node    *Node
	stop    func() error

	mu     sync.Mutex
	events []string
	down   bool
	calls  []string // writes and reads, without the watch
	conns  int      // how often connections were to be closed

	versions bool // whether a patch gives the object a new version, as servers do

	watches []watch.Interface
}

var errDown = errors.New("connection refused")

// newScene returns a scene with the objects. It is called in a bubble.
func newScene(t *testing.T, objects ...apiruntime.Object) *scene {
	s := &scene{t: t, api: apitest.NewClientset(objects...), machine: testMachine(), health: &health{}}
	version, react := 1000, clienttesting.ObjectReaction(s.api.Tracker())
	s.api.PrependReactor("*", "*", func(a clienttesting.Action) (bool, apiruntime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.down {
			return true, nil, errDown
		}
		if a.GetVerb() == "watch" || a.GetVerb() == "list" {
			return false, nil, nil
		}
		s.calls = append(s.calls, a.GetVerb()+" "+a.GetResource().Resource)
		// The tracker of the fake sets neither versions nor UIDs.
		version++
		if c, ok := a.(clienttesting.CreateAction); ok {
			if o, ok := c.GetObject().(metav1.Object); ok && o.GetUID() == "" {
				o.SetUID(types.UID("uid-" + strconv.Itoa(version)))
			}
		}
		if p, ok := a.(clienttesting.PatchActionImpl); ok && s.versions {
			var patch unstructured.Unstructured
			require.NoError(t, json.Unmarshal(p.Patch, &patch.Object))
			patch.SetResourceVersion(strconv.Itoa(version))
			var err error
			p.Patch, err = json.Marshal(patch.Object)
			require.NoError(t, err)
			return react(p)
		}
		return false, nil, nil
	})
	s.api.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.down {
			return true, nil, errDown
		}
		w, err := s.api.Tracker().Watch(a.GetResource(), a.GetNamespace())
		if err == nil {
			s.watches = append(s.watches, w)
		}
		return true, w, err
	})
	s.opts = Options{
		Info: s.machine, Addresses: addresses{{Type: v1.NodeInternalIP, Address: "192.0.2.1"},
			{Type: v1.NodeHostName, Address: "n"}},
		ReadyChecks: []func() error{s.health.get}, Instance: "/var/lib/a",
		Runtime:         func() runtime.Features { return runtime.Features{Name: "containerd", Version: "v2.1.4"} },
		HeartbeatFailed: func() { s.mu.Lock(); defer s.mu.Unlock(); s.conns++ },
		Event: func(e runtime.Event) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.events = append(s.events, e.Type+" "+e.Reason)
		},
	}
	return s
}

// start runs the node.
func (s *scene) start() {
	n, err := New(s.api, "n", s.opts)
	require.NoError(s.t, err)
	s.node = n
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	s.stop = func() error {
		cancel()
		return <-done
	}
}

// after lets time pass.
func (s *scene) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// object returns the node object at the server.
func (s *scene) object() *v1.Node {
	s.t.Helper()
	node, err := s.api.Tracker().Get(v1.SchemeGroupVersion.WithResource("nodes"), "", "n")
	require.NoError(s.t, err)
	return node.(*v1.Node)
}

// take returns the calls since the last one.
func (s *scene) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

func (s *scene) takeEvents() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := s.events
	s.events = nil
	return events
}

func (s *scene) setDown(down bool) { s.mu.Lock(); defer s.mu.Unlock(); s.down = down }

// breakWatches ends all watches, as a server that goes away does.
func (s *scene) breakWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		w.Stop()
	}
	s.watches = nil
}

func count(list []string, what string) (n int) {
	for _, one := range list {
		if one == what {
			n++
		}
	}
	return n
}
