package cluster

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/cluster/node"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// rig is a whole node with a fake runtime, in virtual time, whose API server is in memory.
type rig struct {
	*testing.T
	root   string
	api    *apitest.Server
	rt     *fake.Runtime
	static *podconfigfake.Source
	// change changes the options of the next agent before Configure; nil: nothing.
	change func(*Config, *kubeletkit.Options)
	// join does it with the node that is made; nil: nothing.
	join func(*Node, *kubeletkit.Options)

	node  *Node
	agent *kubeletkit.Agent
	stop  func()

	mu sync.Mutex
	// conn is closed when the node closes its connections; nil if connection was not called since.
	conn chan struct{}
}

// connection returns a channel that is closed when the node closes its connections.
func (r *rig) connection() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		r.conn = make(chan struct{})
	}
	return r.conn
}

// closeConnections closes the connections of the node that are silent.
func (r *rig) closeConnections() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil {
		close(r.conn)
		r.conn = nil
	}
}

// onNode runs the test with a node.
func onNode(t *testing.T, test func(r *rig)) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, root: root, api: apitest.New(), rt: fake.New(fake.Options{Name: "containerd", Dir: root}),
			static: podconfigfake.NewSource("file")}
		defer func() { r.rt.Close() }()
		r.static.Set()
		r.start()
		defer func() { r.stop() }()
		test(r)
	})
}

// facts is a machine of fixed facts.
type facts struct{}

func (facts) NodeInfo(context.Context) (v1.NodeSystemInfo, error) {
	return v1.NodeSystemInfo{MachineID: "m", SystemUUID: "u", BootID: "b"}, nil
}

func (facts) NodeResources(context.Context) (capacity, allocatable v1.ResourceList, err error) {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi"),
		v1.ResourcePods: resource.MustParse("110"), v1.ResourceEphemeralStorage: resource.MustParse("100Gi")}, nil, nil
}

func (facts) NodeAddresses(context.Context) ([]v1.NodeAddress, error) {
	return []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"}}, nil
}

// start starts an agent on the root directory.
func (r *rig) start() {
	config := Config{
		NodeName: "node", REST: &rest.Config{Host: "http://apitest", Transport: http.RoundTripper(r.api)},
		Node: node.Options{Info: facts{}, Addresses: facts{}, HeartbeatFailed: r.closeConnections},
	}
	opts := kubeletkit.Options{
		NodeName: "node", RootDir: r.root, Runtime: r.rt,
		Sources: []podconfig.Source{r.static}, Host: &runtime.Host{NodeName: "node", Hostname: "host",
			IPs: []string{"192.0.2.1"}},
	}
	if r.change != nil {
		r.change(&config, &opts)
	}
	var err error
	r.node, err = New(config)
	require.NoError(r, err)
	if r.join != nil {
		r.join(r.node, &opts)
	}
	require.NoError(r, r.node.Configure(&opts))
	agent, err := kubeletkit.New(opts)
	require.NoError(r, err)
	r.agent = agent
	ctx, cancel := context.WithCancel(r.Context())
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx) }()
	r.stop = func() {
		cancel()
		require.NoError(r, <-done)
	}
}

// after lets the time pass.
func (r *rig) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// requests returns the requests since the last call but watches, with those lists that begin
// a watch left out.
func (r *rig) requests() []string {
	return slices.DeleteFunc(r.api.Requests(), func(s string) bool { return strings.HasPrefix(s, "list") })
}

// bound returns a pod that is bound to the node.
func bound(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: v1.PodSpec{
			NodeName: "node", RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "main",
				Image: "image"}},
			TerminationGracePeriodSeconds: ptr.To[int64](30),
		},
	}
}
