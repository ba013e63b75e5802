package e2e

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// BenchmarkExec runs a command in a container in three ways by turns, and reports how long a client
// waits for its end ("ms"), and how much longer than without the agent ("overhead-ms"), by the
// medians. On a busy machine the tenth percentiles have less noise ("p10-ms",
// "overhead-p10-ms"), and "agent-cpu-ms" is the CPU time of the agent.
//
//   - "runtime" requests a URL from containerd, and connects to it by SPDY.
//   - "agent" connects to the agent's port with TLS, with the certificate of a client, by SPDY.
//   - "agent-websocket" does it by WebSocket with version 5 of the protocol, as kubectl does; the
//     agent translates it.
//
// The commands are "true", and "cat" with 10 MB in both directions.
//
//	go test -run '^$' -bench 'Exec$' -benchtime 100x -timeout 30m
func BenchmarkExec(b *testing.B) {
	const runtimeOnly, overSPDY, overWebSocket = "runtime", "agent", "agent-websocket"
	list := []contestant{{name: runtimeOnly}, {name: overSPDY}, {name: overWebSocket}}
	c := benchCluster(b)
	ca, cert, key := ClientFiles(b, "admin", "system:masters")
	agent := c.StartAgent(b, AgentOptions{Args: []string{"-v", "0"}, Config: map[string]any{
		"enableServer": true, "port": 10250, "authentication": map[string]any{"x509": map[string]string{"clientCAFile": ca}},
	}})
	pod := MakePod("web", Main(Sh("c", Forever)))
	agent.Put(b, pod)
	agent.Await(b, pod, within, Running)
	id := c.Newest(b, FullName(pod), "c").Id
	config := &rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true, CertFile: cert, KeyFile: key}}

	for _, tt := range []struct {
		name  string
		cmd   []string
		input []byte
	}{{"true", []string{"true"}, nil}, {"cat", []string{"cat"}, bytes.Repeat([]byte("0123456789abcde\n"), 10<<16)}} {
		query := url.Values{"command": tt.cmd, "output": {"1"}}
		if tt.input != nil {
			query.Set("input", "1")
		}
		path := "https://127.0.0.1:10250/exec/default/" + FullName(pod) + "/c?" + query.Encode()
		connect := func(ctx context.Context, name string) (remotecommand.Executor, error) {
			if name == overWebSocket {
				return remotecommand.NewWebSocketExecutor(config, http.MethodGet, path)
			}
			at, config := path, config
			if name == runtimeOnly {
				resp, err := c.Runtime.Exec(ctx, &cri.ExecRequest{ContainerId: id, Cmd: tt.cmd, Stdin: tt.input != nil,
					Stdout: true})
				if err != nil {
					return nil, err
				}
				at, config = resp.Url, &rest.Config{}
			}
			u, err := url.Parse(at)
			if err != nil {
				return nil, err
			}
			return remotecommand.NewSPDYExecutor(config, http.MethodPost, u)
		}
		b.Run(tt.name, func(b *testing.B) {
			took := samples{}
			takeTurns(b, list, func(who contestant) {
				var out bytes.Buffer
				o := remotecommand.StreamOptions{Stdout: &out}
				if tt.input != nil {
					out.Grow(len(tt.input))
					o.Stdin = io.Reader(bytes.NewReader(tt.input))
				}
				began, cost := time.Now(), agent.ThreadCPU(b)
				err := c.Net.Do(func() error { // the connections are made in it
					e, err := connect(b.Context(), who.name)
					if err != nil {
						return err
					}
					return e.StreamWithContext(b.Context(), o)
				})
				took.add(who.name, "ms", float64(time.Since(began).Microseconds())/1000)
				took.add(who.name, "agent-cpu-ms", float64((agent.ThreadCPU(b)-cost).Microseconds())/1000)
				if err != nil || !bytes.Equal(out.Bytes(), tt.input) {
					b.Fatalf("%s: %d bytes have returned: %v", who.name, out.Len(), err)
				}
			})
			took.report(b, list, "ms", runtimeOnly, func(name string) map[string]float64 {
				own, others := took[name]["ms"], took[runtimeOnly]["ms"]
				return map[string]float64{
					"overhead-ms": median(own) - median(others),
					"p10-ms":      percentile(own, 10), "overhead-p10-ms": percentile(own, 10) - percentile(others, 10),
				}
			})
		})
	}
	disband(b, c, agent)
}
