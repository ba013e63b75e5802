package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// manifestServer serves the pods of a URL source, or nothing at all.
type manifestServer struct {
	url string

	mu   sync.Mutex
	pods []*v1.Pod
	down bool
}

func newManifestServer(t *testing.T, c *Cluster) *manifestServer {
	t.Helper()
	s := &manifestServer{url: "http://127.0.0.1:8099/pods"}
	listener, err := c.Net.Listen("127.0.0.1:8099")
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(s)
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return s
}

func (s *manifestServer) set(pods ...*v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods, s.down = pods, pods == nil
}

func (s *manifestServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		panic(http.ErrAbortHandler) // the connection breaks
	}
	list := v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	for _, pod := range s.pods {
		list.Items = append(list.Items, *pod)
	}
	json.NewEncoder(w).Encode(list)
}

// A machine that restarts while nobody who wants its pods can be reached runs
// them; when the source is back, it rules.
func TestReboot(t *testing.T) {
	t.Parallel()
	c := NewCluster(t)
	c.Preload(t, "pause:1", "busybox:1")
	source := newManifestServer(t, c)
	agent := c.NewAgent(t, AgentOptions{Config: map[string]any{"staticPodURL": source.url, "httpCheckFrequency": "1s"}})
	s := &suite{Cluster: c, agent: agent}

	same, gone, changed := MakePod("same", Main(Sh("c", Forever))), MakePod("gone", Main(Sh("c", Forever))),
		MakePod("changed", Main(Sh("c", Forever)))
	fromFile := MakePod("from-file", Main(Sh("c", Forever)))
	source.set(same, gone, changed)
	agent.Start(t)
	agent.WaitHealthy(t)
	agent.Put(t, fromFile)
	all := []*v1.Pod{same, gone, changed, fromFile}
	before := s.awaitAll(t, all, Running)

	agent.Kill(t)
	source.set()
	agent.HideManifests(t)
	c.Reboot(t)
	agent.Start(t)
	restored := s.awaitAll(t, all, Running)
	for i, pod := range restored {
		assert.Equal(t, before[i].UID, pod.UID, pod.Name)
		assert.NotEqual(t, Status(before[i], "c").ContainerID, Status(pod, "c").ContainerID,
			"%s: it runs again", pod.Name)
	}

	edit := Sh("c", Forever)
	edit.Env = []v1.EnvVar{{Name: "EDIT", Value: "1"}}
	source.set(same, MakePod("changed", Main(edit)))
	agent.ShowManifests(t)
	agent.AwaitGone(t, within, gone)
	agent.Await(t, changed, within, Running, func(pod *v1.Pod) error {
		if len(pod.Spec.Containers[0].Env) != 1 {
			return errors.New("still the old one")
		}
		return nil
	})
	after := s.awaitAll(t, []*v1.Pod{same, fromFile}, Running)
	adopted(t, restored[0], after[0])
	adopted(t, restored[3], after[1])

	// What its source has taken back does not return.
	agent.Kill(t)
	source.set()
	agent.Start(t)
	s.awaitAll(t, []*v1.Pod{same, changed, fromFile}, Running)
	_, err := agent.Pod(gone)
	assert.Error(t, err, fmt.Sprintf("pod %s is back", gone.Name))
}
