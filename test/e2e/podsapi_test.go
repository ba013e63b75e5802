package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	pods "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// TestPodsAPIOfKubelet runs the same static pods on a kubelet and on the agent, and compares what the pods API has of
// them: the socket, lists, single pods, errors, and the events of a watch.
func TestPodsAPIOfKubelet(t *testing.T) {
	t.Parallel()
	Need(t)
	clients := map[string]*podsAPIClient{}
	binaries := map[string]string{"ours": "", "kubelet": KubeletBinary(t)}
	for name, binary := range binaries {
		c := NewCluster(t)
		c.Preload(t, "pause:1", "busybox:1")
		clients[name] = newPodsAPIClient(t, c.NewAgent(t, AgentOptions{Binary: binary}))
		clients[name].Put(t, podsAPIPods()[:2]...)
		clients[name].Start(t)
	}
	ours, kubelets := clients["ours"], clients["kubelet"]
	both := func(what string, get func(c *podsAPIClient) (any, error)) {
		t.Helper()
		Eventually(t, within, what+" as kubelet's", func() error {
			k, err := get(kubelets)
			if err != nil {
				return fmt.Errorf("kubelet: %w", err)
			}
			o, err := get(ours)
			if err != nil {
				return err
			}
			if !assert.ObjectsAreEqual(k, o) {
				return fmt.Errorf("%s", jsonDifferences("", k, o))
			}
			return nil
		})
	}
	for _, c := range clients {
		c.awaitPhase(t, "web", v1.PodRunning)
		c.awaitPhase(t, "job", v1.PodSucceeded)
	}
	both("socket", func(c *podsAPIClient) (any, error) { return c.modes() })
	both("list", func(c *podsAPIClient) (any, error) { return c.list(t) })
	for i, pod := range podsAPIPods()[:2] {
		both(pod.Name, func(c *podsAPIClient) (any, error) {
			answer, err := c.GetPod(t.Context(), &pods.GetPodRequest{PodUID: string(podUID(i))})
			if err != nil {
				return nil, err
			}
			return blankedPod(answer.GetPod())
		})
	}
	both("error", func(c *podsAPIClient) (any, error) {
		_, err := c.GetPod(t.Context(), &pods.GetPodRequest{PodUID: "other"})
		if status.Code(err) != codes.NotFound {
			return nil, fmt.Errorf("a pod that there is not: %v", err)
		}
		return err.Error(), nil
	})

	all := podsAPIPods()
	for _, c := range clients {
		c.watch(t)
		c.awaitEvent(t, "INITIAL_SYNC_COMPLETE", "")
		c.Put(t, all[2])
		c.awaitEvent(t, "MODIFIED Running", "late")
	}
	both("list with another pod", func(c *podsAPIClient) (any, error) { return c.list(t) })
	// "" are the events without a pod. Whether the end of the job is before or after the begin of the watch varies.
	for _, name := range []string{"", "web", "late"} {
		both("events of pod "+name, func(c *podsAPIClient) (any, error) { return c.kinds(name), nil })
		both("last event of pod "+name, func(c *podsAPIClient) (any, error) { return c.last(name), nil })
	}
	for _, c := range clients {
		c.Remove(t, all...)
		c.awaitEvent(t, "DELETED", "web")
		c.awaitEvent(t, "DELETED", "late")
	}
	both("list without pods", func(c *podsAPIClient) (any, error) { return c.list(t) })
	for _, name := range []string{"web", "late"} {
		// A difference: kubelet has ADDED again before DELETED, with a status that the pod had before.
		kinds := ours.kinds(name)
		assert.Equal(t, []string{"MODIFIED Succeeded", "DELETED"}, kinds[max(len(kinds)-2, 0):], name)
		both("last event of pod "+name, func(c *podsAPIClient) (any, error) { return c.last(name), nil })
	}
}

// podsAPIPods are pods with what has a status: probes, init containers, sidecars, volumes, an end.
func podsAPIPods() []*v1.Pod {
	main := Sh("main", Forever)
	main.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}},
		PeriodSeconds: 1, TimeoutSeconds: 60}
	list := []*v1.Pod{
		MakePod("web", Init(Sh("init", "true")), Sidecar(Sh("side", Forever)), Main(main),
			Mounted("tmp", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})),
		MakePod("job", Policy(v1.RestartPolicyNever), Main(Sh("main", "echo done > /dev/termination-log"))),
		MakePod("late", Main(Sh("main", Forever))),
	}
	for i, pod := range list {
		pod.UID = podUID(i)
		pod.Labels, pod.Annotations = map[string]string{"app": pod.Name}, map[string]string{"example.com/note": "kept"}
		pod.Spec.TerminationGracePeriodSeconds = ptr(int64(1))
	}
	return list
}

// podsAPIClient is a client of the pods API of an agent.
type podsAPIClient struct {
	*Agent
	pods.PodsClient

	mu     sync.Mutex
	events []*pods.WatchPodsEvent
	err    error // of the watch
}

func newPodsAPIClient(t *testing.T, a *Agent) *podsAPIClient {
	conn, err := grpc.NewClient("unix:"+filepath.Join(a.Root, "pods-api/pods-api.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &podsAPIClient{Agent: a, PodsClient: pods.NewPodsClient(conn)}
}

// modes returns the modes of the socket and of its directory.
func (c *podsAPIClient) modes() (any, error) {
	var modes []string
	for _, path := range []string{"pods-api", "pods-api/pods-api.sock"} {
		info, err := os.Stat(filepath.Join(c.Root, path))
		if err != nil {
			return nil, err
		}
		modes = append(modes, fmt.Sprint(path, " ", info.Mode()))
	}
	entries, err := os.ReadDir(filepath.Join(c.Root, "pods-api"))
	return append(modes, fmt.Sprint(len(entries), " entries")), err
}

// list returns the pods of a list, in its order.
func (c *podsAPIClient) list(t *testing.T) (list []any, err error) {
	answer, err := c.ListPods(t.Context(), &pods.ListPodsRequest{})
	for _, data := range answer.GetPods() {
		pod, err := blankedPod(data)
		if err != nil {
			return nil, err
		}
		list = append(list, pod)
	}
	return list, err
}

// awaitPhase waits until the pod has the phase, and is ready if it runs.
func (c *podsAPIClient) awaitPhase(t *testing.T, name string, phase v1.PodPhase) {
	t.Helper()
	Eventually(t, within, "pod "+name+" "+string(phase), func() error {
		answer, err := c.ListPods(t.Context(), &pods.ListPodsRequest{})
		if err != nil {
			return err
		}
		for _, data := range answer.GetPods() {
			pod := decodePod(data)
			if pod.Name == FullName(MakePod(name)) && pod.Status.Phase == phase {
				if phase == v1.PodRunning {
					return Ready(true)(pod)
				}
				return nil
			}
		}
		return fmt.Errorf("there is no such pod in %d", len(answer.GetPods()))
	})
}

// watch collects the events of a watch until the test ends.
func (c *podsAPIClient) watch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := c.WatchPods(ctx, &pods.WatchPodsRequest{})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			event, err := stream.Recv()
			c.mu.Lock()
			if c.err = err; err == nil {
				c.events = append(c.events, event)
			}
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// kinds returns the types and phases of the events of the pod, "" for those without a pod, each once in a row.
func (c *podsAPIClient) kinds(name string) (kinds []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, event := range c.events {
		pod := decodePod(event.GetPod())
		kind := event.GetType().String()
		if pod.Status.Phase != "" {
			kind += " " + string(pod.Status.Phase)
		}
		if (name == "" && pod.Name == "" || name != "" && pod.Name == FullName(MakePod(name))) &&
			(len(kinds) == 0 || kinds[len(kinds)-1] != kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// last returns the pod of the last event of the pod.
func (c *podsAPIClient) last(name string) (last any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, event := range c.events {
		if decodePod(event.GetPod()).Name == FullName(MakePod(name)) {
			last, _ = blankedPod(event.GetPod())
		}
	}
	return last
}

func (c *podsAPIClient) awaitEvent(t *testing.T, kind, name string) {
	t.Helper()
	Eventually(t, within, kind+" "+name, func() error {
		if kinds := c.kinds(name); !slices.Contains(kinds, kind) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return fmt.Errorf("%v, %v", kinds, c.err)
		}
		return nil
	})
}

func decodePod(data []byte) *v1.Pod {
	pod := &v1.Pod{}
	_ = pod.Unmarshal(data) // it is empty then
	return pod
}

// blankedPod returns the pod as JSON in which the fields that differ between two agents have no value.
func blankedPod(data []byte) (any, error) {
	pod := &v1.Pod{}
	if err := pod.Unmarshal(data); err != nil {
		return nil, err
	}
	text, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	err = json.Unmarshal(text, &out)
	blank(out)
	return out, err
}

// blanked are the fields of which only the presence is compared: times, IDs and addresses.
var blanked = []string{"kubernetes.io/config.seen", "startTime", "startedAt", "finishedAt", "lastTransitionTime",
	"containerID", "ip", "podIP", "hostIP"}

func blank(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			if slices.Contains(blanked, key) && v[key] != nil {
				v[key] = "set"
			}
			blank(v[key])
		}
	case []any:
		for i := range v {
			blank(v[i])
		}
	}
}

// jsonDifferences returns the paths of two values of JSON at which they differ.
func jsonDifferences(path string, kubelets, ours any) (text string) {
	k, isMap := kubelets.(map[string]any)
	o, areMaps := ours.(map[string]any)
	if kl, ok := kubelets.([]any); ok {
		k, isMap = map[string]any{}, true
		for i := range kl {
			k[fmt.Sprint(i)] = kl[i]
		}
	}
	if ol, ok := ours.([]any); ok {
		o, areMaps = map[string]any{}, true
		for i := range ol {
			o[fmt.Sprint(i)] = ol[i]
		}
	}
	if !isMap || !areMaps {
		if assert.ObjectsAreEqual(kubelets, ours) {
			return ""
		}
		return fmt.Sprintf("%s: kubelet %v, ours %v\n", path, kubelets, ours)
	}
	for key := range k {
		text += jsonDifferences(path+"."+key, k[key], o[key])
	}
	for key := range o {
		if _, ok := k[key]; !ok {
			text += jsonDifferences(path+"."+key, nil, o[key])
		}
	}
	return text
}
