package kubelet

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/admission"
	"github.com/kubeletkit/kubeletkit/node/cgroup"
	"github.com/kubeletkit/kubeletkit/node/devices"
	"github.com/kubeletkit/kubeletkit/node/eviction"
	"github.com/kubeletkit/kubeletkit/node/placement/topology"
	"github.com/kubeletkit/kubeletkit/node/shutdown"
	"github.com/kubeletkit/kubeletkit/node/users"
)

// licences is a component of a program that checks something before devices are given. It keeps its node.
type licences struct {
	lifecycle.Admitter
	node lifecycle.Node
}

func (l *licences) Join(node lifecycle.Node) error {
	l.node = node
	return nil
}

func (*licences) Order() lifecycle.Order { return lifecycle.Order{Before: []string{"devices"}} }

// away is a kubeconfig of an API server that does not answer.
const away = `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}], users: [{name: u, user: {token: t}}]}
`

// A kubelet whose components are in any order starts, runs a pod with a component of the program, and stops. What
// components declare is kept.
func TestComponentsInAnyOrder(t *testing.T) {
	t.Parallel()
	for i := range 8 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(i, ", seed ", seed), func(t *testing.T) {
			t.Parallel()
			e := newEmbedder(t)
			random := rand.New(rand.NewPCG(seed, 0))
			e.opts.process.onJoin = func(list []lifecycle.Component) {
				random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			}
			mine := &licences{Admitter: lifecycle.AdmitterFunc("licences",
				func(lifecycle.AdmitRequest) error { return nil })}
			e.opts.Join = []lifecycle.Component{mine}
			kubeconfig := filepath.Join(e.root, "kubeconfig")
			require.NoError(t, os.WriteFile(kubeconfig, []byte(away), 0o600))
			k, stop := e.start("--kubeconfig", kubeconfig, "--hostname-override=node")
			e.pods <- []*v1.Pod{podOf("web")}
			e.runs(k, "web")
			var names []string
			for _, c := range mine.node.Components() {
				names = append(names, c.Name())
			}
			for before, after := range map[string]string{"eviction": "node", "licences": "devices",
				"user namespaces": "devices", "node": "devices"} {
				require.Contains(t, names, before)
				require.Contains(t, names, after)
				assert.Less(t, slices.Index(names, before), slices.Index(names, after), "%s, %s: %v", before, after,
					names)
			}
			stop()
		})
	}
}

// A component declares its order with the names of others: a name that none has would have no effect.
func TestNamesInOrders(t *testing.T) {
	names := []string{(*topology.Manager)(nil).Name(), (*admission.Admitter)(nil).Name(),
		(*devices.Manager)(nil).Name()}
	for _, c := range []lifecycle.Ordered{(*eviction.Manager)(nil), (*shutdown.Manager)(nil), (*users.Manager)(nil),
		(*cgroup.Manager)(nil), (*admission.Admitter)(nil), (*devices.Manager)(nil),
		cgroup.RefuseLimits("").(lifecycle.Ordered)} {
		order := c.Order()
		assert.Subset(t, names, slices.Concat(order.Before, order.After), c.Name())
	}
}
