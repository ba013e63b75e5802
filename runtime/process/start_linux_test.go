package process_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime/process"
	"github.com/kubeletkit/kubeletkit/status"
)

const job = `{apiVersion: v1, kind: Pod, metadata: {name: job}, spec: {restartPolicy: Never, containers: [{name: main, image: host, command: ["true"]}]}}`

// TestStart runs an agent on the runtime as soon as Start has returned, as the documentation of the package shows: it
// logs no error, and no call fails.
func TestStart(t *testing.T) {
	dir, err := os.MkdirTemp("", "ps") // short, for the sockets in it
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	var mu sync.Mutex
	var logged []string
	log := funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		logged = append(logged, prefix+" "+args)
	}, funcr.Options{})
	rt, err := process.Start(t.Context(), process.Options{Dir: dir + "/process", Logger: log})
	require.NoError(t, err)
	require.NoError(t, rt.Check(t.Context()))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	require.NoError(t, kubeletkit.Run(ctx, kubeletkit.Options{
		NodeName: "edge-7", RootDir: dir, Runtime: rt, Sources: []podconfig.Source{manifest.NewStatic("jobs", job)},
		Observe: kubeletkit.Observe{Logger: log},
		StatusSink: status.SinkFunc(func(_ context.Context, _ *v1.Pod, st v1.PodStatus) error {
			if st.Phase == v1.PodSucceeded {
				stop()
			}
			return nil
		}),
	}))
	require.NoError(t, rt.Close())
	<-rt.Server().Done()
	require.Error(t, rt.Check(t.Context()))
	mu.Lock()
	defer mu.Unlock()
	require.NotEmpty(t, logged)
	for _, line := range logged {
		assert.False(t, strings.Contains(line, `"error"=`), line)
	}
}

func TestStartRefusesWhatOpenDoes(t *testing.T) {
	_, err := process.Start(t.Context(), process.Options{})
	require.ErrorContains(t, err, "field Dir is required")
	dir, err := os.MkdirTemp("", "ps")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	opts := process.Options{Dir: dir}
	opts.CRI.ImageEndpoint = "tcp://nonsense"
	_, err = process.Start(t.Context(), opts)
	require.Error(t, err)
	server, err := process.Open(t.Context(), process.Options{Dir: dir})
	require.NoError(t, err, "the server that Start has opened is closed")
	require.NoError(t, server.Close())
}
