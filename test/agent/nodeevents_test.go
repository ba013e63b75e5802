package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/podconfig"
	podconfigfake "github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// nodeEvents runs an agent to its end or until it has started, and returns its events about the node.
func nodeEvents(t *testing.T, root string, host runtime.Host) (events []string, err error) {
	rt := fake.New(fake.Options{})
	defer rt.Close()
	var mu sync.Mutex
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	source := podconfigfake.NewSource("file")
	source.Set()
	agent, err := kubeletkit.New(kubeletkit.Options{
		NodeName: "n", RootDir: root, Runtime: rt, Host: &host, Sources: []podconfig.Source{source},
		Observe: kubeletkit.Observe{EveryEvent: func(e runtime.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Pod == (runtime.PodRef{}) {
				events = append(events, e.Type+" "+e.Reason+": "+e.Message)
			}
		}},
	})
	require.NoError(t, err)
	require.NoError(t, agent.Add("end", func(context.Context) error { cancel(); return nil }))
	err = agent.Run(ctx)
	mu.Lock()
	defer mu.Unlock()
	return events, err
}

// The limits of a host's resolv.conf are checked when the agent starts, with kubelet's event.
func TestLimitsOfResolvConf(t *testing.T) {
	long := strings.Repeat("a.", 130)
	for name, tc := range map[string]struct {
		content, domain, want string
	}{
		"fine":             {content: "search a b\n", domain: "cluster.local"},
		"32 domains":       {content: "search" + strings.Repeat(" a", 32) + "\n"},
		"33 domains":       {content: "search" + strings.Repeat(" a", 33) + "\n", want: "Resolv.conf file 'FILE' contains search line consisting of more than 32 domains!"},
		"the last line":    {content: "search" + strings.Repeat(" a", 33) + "\nsearch a . b.\n"},
		"room for our own": {content: "search" + strings.Repeat(" a", 30) + "\n", domain: "cluster.local", want: "Resolv.conf file 'FILE' contains search line consisting of more than 29 domains!"},
		"a long domain":    {content: "search " + long + "\n", want: `Resolv.conf file "FILE" contains a search path which length is more than allowed 253 chars!`},
		"long in all":      {content: "search" + strings.Repeat(" "+long[:200], 11) + "\n", want: "Resolv.conf file 'FILE' contains search line which length is more than allowed 2048 chars!"},
		"a missing file":   {want: "open FILE: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			file := filepath.Join(root, "resolv.conf")
			if tc.content != "" {
				require.NoError(t, os.WriteFile(file, []byte(tc.content), 0o600))
			}
			events, err := nodeEvents(t, filepath.Join(root, "agent"),
				runtime.Host{ResolvConf: file, ClusterDomain: tc.domain})
			require.NoError(t, err)
			var want []string
			if tc.want != "" {
				want = []string{"Warning CheckLimitsForResolvConf: " + strings.ReplaceAll(tc.want, "FILE", file)}
			}
			assert.Equal(t, want, events)
		})
	}
}

// An agent that cannot start says so with kubelet's event.
func TestSetupThatFails(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	require.NoError(t, os.WriteFile(root, nil, 0o600)) // a file in the place of the directory
	events, err := nodeEvents(t, root, runtime.Host{})
	require.Error(t, err)
	assert.Equal(t, []string{"Warning KubeletSetupFailed: " + strings.TrimPrefix(err.Error(), "kubeletkit: ")}, events)
}
