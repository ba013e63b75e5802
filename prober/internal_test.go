package prober

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeletkit/kubeletkit/internal/nodenet"
	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Races that cannot be brought about from outside.

// empty is a runtime without pods.
type empty struct{}

func (empty) Get(types.UID) (*runtime.PodStatus, bool) { return nil, false }

func (empty) Exec(context.Context, runtime.ContainerID, []string, time.Duration) (runtime.ExecResult, error) {
	return runtime.ExecResult{}, runtime.ErrNotFound
}

// A result that comes between the sending of an earlier one and its removal is not
// removed with it.
func TestAResultThatWasReplacedIsKept(t *testing.T) {
	m, err := New(empty{}, empty{}, Options{})
	require.NoError(t, err)
	id := runtime.ContainerID{Type: "fake", ID: "1"}
	m.enqueue(runtime.ProbeResult{ContainerID: id, Kind: runtime.ReadinessProbe, Healthy: true})
	_, taken, key := m.first()
	m.enqueue(runtime.ProbeResult{ContainerID: id, Kind: runtime.ReadinessProbe, Healthy: false})
	m.sent(key, taken)
	out, next, _ := m.first()
	assert.NotNil(t, out)
	assert.False(t, next.Healthy)
	m.sent(key, next)
	out, _, _ = m.first()
	assert.Nil(t, out)
}

// An attempt that ends as its worker is stopped changes nothing.
func TestAStoppedWorkerHasNoResult(t *testing.T) {
	m, err := New(empty{}, empty{}, Options{})
	require.NoError(t, err)
	id := runtime.ContainerID{Type: "fake", ID: "1"}
	pod := testpod.New("web", testpod.Container(v1.Container{Name: "app", LivenessProbe: &v1.Probe{}}))
	m.AddPod(pod)
	w := m.pods[pod.UID].workers[workerKey{"app", runtime.LivenessProbe}]
	m.StopLivenessAndStartup(pod)
	m.set(w, id, false, "")
	_, bad := m.Unhealthy(id)
	assert.False(t, bad)
	assert.Empty(t, m.unsent)
	m.RemovePod(pod)
	m.set(w, id, false, "")
	assert.Empty(t, m.states)
}

// A server that answers over HTTP/2 and does not read does not block the prober: to read
// from it, HTTP/2 has to write to it.
func TestAServerThatDoesNotRead(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 100<<10))
		<-r.Context().Done() // the response has no end
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	h := newHTTPHandler(Options{UserAgent: "test"})
	h.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return nodenet.Stuck(conn, 8<<10), nil
	}
	address := server.Listener.Addr().(*net.TCPAddr)
	for range 2 { // whether the write is one that net/http waits for is a matter of scheduling
		_, _, err := h.Check(t.Context(), Target{
			Container: &v1.Container{}, Address: address.IP.String(), Timeout: 100 * time.Millisecond,
			Probe: &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Scheme: v1.URISchemeHTTPS,
				Port: intstr.FromInt(address.Port)}}},
		})
		require.NoError(t, err)
	}
}

type panicking struct{ empty }

func (panicking) Exec(context.Context, runtime.ContainerID, []string, time.Duration) (runtime.ExecResult, error) {
	panic("not here")
}

func TestAPanicOfTheRuntimeIsAnError(t *testing.T) {
	probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}
	pod := testpod.New("web", testpod.Container(v1.Container{Name: "app", LivenessProbe: probe}))
	c := &pod.Spec.Containers[0]
	l, p := newChain(nil, DefaultHandlers(panicking{}, Options{})).find(pod, c, runtime.LivenessProbe)
	outcome, _, err := l.attempt(t.Context(), Target{Pod: pod, Container: c, Probe: p, Timeout: time.Second})
	assert.Equal(t, Unknown, outcome)
	assert.ErrorAs(t, err, new(*runtime.PanicError))
}
