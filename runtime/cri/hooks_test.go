package cri

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// web answers hooks in memory.
type web struct {
	requests []*http.Request
	// plain refuses HTTPS.
	plain bool
	code  int
	// location is the target of a redirect.
	location string
}

func (w *web) RoundTrip(req *http.Request) (*http.Response, error) {
	w.requests = append(w.requests, req)
	if w.plain && req.URL.Scheme == "https" {
		return nil, http.ErrSchemeMismatch
	}
	header := http.Header{}
	if w.location != "" {
		header.Set("Location", w.location)
	}
	return &http.Response{StatusCode: max(w.code, 200), Header: header, Body: io.NopCloser(strings.NewReader("ok")),
		TLS: &tls.ConnectionState{}}, nil
}

func TestHTTPHook(t *testing.T) {
	ports := []v1.ContainerPort{{Name: "web", ContainerPort: 8080}}
	tests := []struct {
		name  string
		get   v1.HTTPGetAction
		host  string
		plain bool
		urls  []string
		err   string
	}{
		{name: "a named port of the pod", get: v1.HTTPGetAction{Port: intstr.FromString("web"), Path: "/bye?now=1"}, host: "10.0.0.7", urls: []string{"http://10.0.0.7:8080/bye?now=1"}},
		{name: "a host of its own", get: v1.HTTPGetAction{Host: "h", Port: intstr.FromInt32(1), Path: "x"}, host: "10.0.0.7", urls: []string{"http://h:1/x"}},
		{name: "IPv6", get: v1.HTTPGetAction{Port: intstr.FromInt32(1)}, host: "fd00::7", urls: []string{"http://[fd00::7]:1/"}},
		{name: "a port as text", get: v1.HTTPGetAction{Port: intstr.FromString("81")}, host: "h", urls: []string{"http://h:81/"}},
		{name: "HTTPS", get: v1.HTTPGetAction{Scheme: v1.URISchemeHTTPS, Port: intstr.FromInt32(1)}, host: "h", urls: []string{"https://h:1/"}},
		{name: "HTTPS that is HTTP", get: v1.HTTPGetAction{Scheme: v1.URISchemeHTTPS, Port: intstr.FromInt32(1)}, host: "h", plain: true, urls: []string{"https://h:1/", "http://h:1/"}},
		{name: "no address", get: v1.HTTPGetAction{Port: intstr.FromInt32(1)}, err: "httpGet: the pod has no address"},
		{name: "no such port", get: v1.HTTPGetAction{Port: intstr.FromString("db")}, host: "h", err: "httpGet: port db: neither a port number nor the name of a port of the container"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := &web{plain: tt.plain, code: 500} // any response will do
			tt.get.HTTPHeaders = []v1.HTTPHeader{{Name: "X", Value: "1"}, {Name: "x", Value: "2"},
				{Name: "Host", Value: "vhost"}, {Name: "Authorization", Value: "hush"}}
			rt := New(nil, nil, Options{transport: w})
			var events []runtime.Event
			about := emitter{pod: runtime.PodRef{Name: "web"},
				emit: func(e runtime.Event) { events = append(events, e) }}
			err := rt.runHook(t.Context(), &hook{handler: &v1.LifecycleHandler{HTTPGet: &tt.get}, ports: ports,
				host: tt.host, events: about})
			if tt.err != "" {
				require.EqualError(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			var urls []string
			for i, req := range w.requests {
				urls = append(urls, req.URL.String())
				assert.Equal(t, []string{"1", "2"}, req.Header["X"])
				assert.Equal(t, "vhost", req.Host)
				assert.Equal(t, i == 0, req.Header.Get("Authorization") != "", "not in clear if it was to be encrypted")
			}
			assert.Equal(t, tt.urls, urls)
			if tt.plain {
				assert.Equal(t,
					[]runtime.Event{{Pod: runtime.PodRef{Name: "web"}, Type: "Warning", Reason: "LifecycleHTTPFallback",
						Message: "request to HTTPS lifecycle hook h:1 got HTTP response, retry with HTTP succeeded"}},
					events)
			} else {
				assert.Empty(t, events)
			}
		})
	}
}

func TestHTTPHookHeaders(t *testing.T) {
	for name, tc := range map[string]struct {
		given  []v1.HTTPHeader
		host   string
		accept []string
	}{
		"none":         {nil, "h:1", []string{"*/*"}},
		"empty Accept": {[]v1.HTTPHeader{{Name: "accept"}}, "h:1", nil},
		"own Accept":   {[]v1.HTTPHeader{{Name: "Accept", Value: "text/plain"}}, "h:1", []string{"text/plain"}},
		"two hosts":    {[]v1.HTTPHeader{{Name: "Host", Value: "a"}, {Name: "host", Value: "b"}}, "a", []string{"*/*"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &web{}
			get := &v1.HTTPGetAction{Port: intstr.FromInt32(1), HTTPHeaders: tc.given}
			require.NoError(t, New(nil, nil, Options{transport: w}).runHook(t.Context(),
				&hook{handler: &v1.LifecycleHandler{HTTPGet: get}, host: "h"}))
			require.Len(t, w.requests, 1)
			assert.Equal(t, tc.host, w.requests[0].Host)
			assert.Equal(t, tc.accept, w.requests[0].Header["Accept"])
		})
	}
}

// A container must not make the agent send requests, with the headers of the spec, to
// what only the node reaches.
func TestHTTPHookFollowsNoRedirect(t *testing.T) {
	for _, location := range []string{"http://192.0.2.1/latest/credentials", "https://10.0.0.7:10250/exec", "/again"} {
		for _, code := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect,
			http.StatusPermanentRedirect} {
			w := &web{code: code, location: location}
			rt := New(nil, nil, Options{transport: w})
			get := &v1.HTTPGetAction{Port: intstr.FromInt32(1),
				HTTPHeaders: []v1.HTTPHeader{{Name: "X-Secret", Value: "hush"}}}
			assert.NoError(t, rt.runHook(t.Context(), &hook{handler: &v1.LifecycleHandler{HTTPGet: get},
				host: "10.0.0.7"}), "any response will do")
			require.Len(t, w.requests, 1, "%d to %s", code, location)
			assert.Equal(t, "http://10.0.0.7:1/", w.requests[0].URL.String())
		}
	}
}

// A container answers with as many headers as a client reads.
func TestHTTPHookHeadersAreBounded(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn, err := lis.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = http.ReadRequest(bufio.NewReader(conn))
		_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\n" + strings.Repeat("a:\r\n", 1<<20) + "\r\n"))
	}()
	get := &v1.HTTPGetAction{Port: intstr.FromInt(lis.Addr().(*net.TCPAddr).Port)}
	err = New(nil, nil, Options{}).runHook(t.Context(),
		&hook{handler: &v1.LifecycleHandler{HTTPGet: get}, host: "127.0.0.1"})
	assert.ErrorContains(t, err, "server response headers exceeded 65536 bytes")
	require.NoError(t, lis.Close())
	<-served
}

// The texts are kubelet's.
func TestHookMessage(t *testing.T) {
	pod := runtime.PodRef{UID: "u", Namespace: "ns", Name: "web"}
	exec, get := &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", "x"}}},
		&v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/p"}}
	for _, tc := range []struct {
		handler *v1.LifecycleHandler
		err     error
		want    string
	}{
		{exec, &hookExit{exec.Exec.Command, 3, []byte("out\n"), []byte("err")}, `Exec lifecycle hook ([sh -c x]) for Container "c" in Pod "web_ns(u)" failed - error: command 'sh -c x' exited with 3: err, message: "out\nerr"`},
		{exec, fmt.Errorf("exec: %w", &callError{call: "ExecSync", message: "gone"}), `Exec lifecycle hook ([sh -c x]) for Container "c" in Pod "web_ns(u)" failed - error: gone, message: ""`},
		{get, fmt.Errorf("httpGet: %w", errors.New("refused")), `HTTP lifecycle hook (/p) for Container "c" in Pod "web_ns(u)" failed - error: refused`},
		{&v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 5}}, errors.New("cut off"), `Sleep lifecycle hook (5) for Container "c" in Pod "web_ns(u)" failed - error: cut off`},
		{&v1.LifecycleHandler{}, errors.New("invalid handler"), "Cannot run handler: invalid handler"},
	} {
		assert.Equal(t, tc.want, hookMessage(tc.handler, pod, "c", tc.err))
	}
	long := hookMessage(exec, pod, "c", &hookExit{exec.Exec.Command, 3, bytes.Repeat([]byte("o"), 1<<20),
		bytes.Repeat([]byte("e"), 1<<20)})
	assert.Less(t, len(long), 3*maxHookOutput)
}

func TestTCPSocketHookFails(t *testing.T) {
	rt := New(nil, nil, Options{})
	assert.ErrorContains(t,
		rt.runHook(t.Context(), &hook{handler: &v1.LifecycleHandler{TCPSocket: &v1.TCPSocketAction{}}}), "tcpSocket")
	assert.ErrorContains(t, rt.runHook(t.Context(), &hook{handler: &v1.LifecycleHandler{}}), "invalid handler")
}

func TestHookHost(t *testing.T) {
	pod, host := testpod.New("web"), &runtime.Host{IPs: []string{"192.0.2.1"}}
	onHost := testpod.With(pod, func(pod *v1.Pod) { pod.Spec.HostNetwork = true })
	known := onHost.DeepCopy()
	known.Status.HostIP = "192.0.2.2"
	assert.Equal(t, "10.0.0.7", hookHost(pod, []string{"10.0.0.7", "fd00::7"}, host))
	assert.Equal(t, "", hookHost(pod, nil, host))
	assert.Equal(t, "", hookHost(nil, nil, nil))
	assert.Equal(t, "192.0.2.1", hookHost(onHost, nil, host))
	assert.Equal(t, "192.0.2.2", hookHost(known, nil, nil))
	assert.Equal(t, "127.0.0.1", hookHost(onHost, nil, nil))
}
