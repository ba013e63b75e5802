package e2e

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// A checkpoint of a container on a real containerd, by kubelet's API. Where criu works, the state is
// in a file and its answer has the path. Elsewhere the answer has the words of the runtime. In both
// cases the container runs on.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	works := exec.Command("criu", "check").Run() == nil
	for name, binary := range map[string]string{"minikubelet": "", "kubelet": KubeletBinary(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := NewCluster(t)
			c.Preload(t, "pause:1", "busybox:1")
			s := newStandalone(t, func(config map[string]any) *Agent {
				return c.StartAgent(t, AgentOptions{Binary: binary, Config: config})
			})
			pod := MakePod("web", Main(Sh("c", "i=0; while :; do i=$((i+1)); echo $i > /count; sleep 0.1; done")))
			s.Put(t, pod)
			s.Await(t, pod, within, Running)
			before := c.Newest(t, FullName(pod), "c").Id
			pid := c.PID(t, before)

			for path, text := range map[string]string{
				"default/none/c": "pod does not exist", "default/" + FullName(pod) + "/none": "container none does not exist",
				"default/" + FullName(pod) + "/c?timeout=soon": "cannot parse value of timeout parameter",
			} {
				code, body := s.post(t, "/checkpoint/"+path)
				assert.Equal(t, http.StatusNotFound, code, path)
				assert.Contains(t, body, text)
			}
			code, body := s.post(t, "/checkpoint/default/"+FullName(pod)+"/c")
			files, err := filepath.Glob(filepath.Join(s.Root, "checkpoints", "*"))
			require.NoError(t, err)
			if works {
				var answer struct{ Items []string }
				require.NoError(t, json.Unmarshal([]byte(body), &answer), body)
				assert.Equal(t, http.StatusOK, code)
				require.Equal(t, files, answer.Items)
				info, err := os.Stat(files[0])
				require.NoError(t, err)
				assert.NotZero(t, info.Size())
				assert.Equal(t, os.FileMode(0o600), info.Mode())
			} else {
				t.Log(body)
				assert.Equal(t, http.StatusInternalServerError, code)
				assert.Contains(t, body, "checkpointing of default/"+FullName(pod)+"/c failed (")
				assert.Contains(t, body, "criu")
				assert.Empty(t, files)
			}
			assert.Equal(t, before, c.Newest(t, FullName(pod), "c").Id)
			assert.Equal(t, pid, c.PID(t, before))
			count := c.Exec(t, FullName(pod), "c", "cat", "/count")
			Eventually(t, within, "the container runs on", func() error {
				if now := c.Exec(t, FullName(pod), "c", "cat", "/count"); now == count {
					return assert.AnError
				}
				return nil
			})
		})
	}
}

// standalone is an agent without an API server, and a client of its port with TLS that may do
// everything.
type standalone struct {
	*Agent
	base string
	http *http.Client
	// config has the certificate of the client.
	config *rest.Config
}

// newStandalone has the agent started with a configuration.
func newStandalone(t *testing.T, start func(config map[string]any) *Agent) *standalone {
	t.Helper()
	ca, cert, key := ClientFiles(t, "admin", "system:masters")
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	agent := start(map[string]any{"enableServer": true, "port": 10250, "authentication": map[string]any{
		"x509": map[string]string{"clientCAFile": ca}, "webhook": map[string]any{"enabled": false}, "anonymous": map[string]any{"enabled": false},
	}})
	transport := &http.Transport{
		DialContext: agent.DialContext, TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair},
			InsecureSkipVerify: true},
		DisableKeepAlives: true, // an idle connection would be among what the agent holds
	}
	return &standalone{
		agent, "https://127.0.0.1:10250", &http.Client{Transport: transport},
		&rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true, CertFile: cert, KeyFile: key}},
	}
}

// post returns the status of the answer to a request, and its text.
func (s *standalone) post(t *testing.T, path string) (code int, body string) {
	t.Helper()
	code, body, err := (&clientOfPort{base: s.base, http: s.http}).request(http.MethodPost, path)
	require.NoError(t, err)
	return code, body
}
