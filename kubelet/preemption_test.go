package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// Without an API server, too, a critical pod that does not fit takes the place of a static pod of lower priority, and
// starts when that has ended. A static pod without a priority takes the place of none.
func TestStaticPodPreempts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	put := func(name, priority string, cpus int) {
		fresh := filepath.Join(b.root, "fresh")
		write(t, fresh, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n%s  containers:\n  - "+
			"{name: c, image: i, resources: {requests: {cpu: %d}}}\n", name, priority, cpus))
		require.NoError(t, os.Rename(fresh, filepath.Join(b.manifests, name+".yaml")))
	}
	put("low", "  priority: 100\n", goruntime.NumCPU())
	b.start()
	b.await("low-n 1/1 Running", "pods")
	put("plain", "", 1)
	b.await("OutOfcpu", "describe", "plain")

	victim := fake.Target{Pod: "low-n"}
	put("critical", "  priority: 2000001000\n  priorityClassName: system-node-critical\n", 1)
	b.await("critical-n 1/1 Running", "pods")
	assert.Empty(t, b.rt.Running(victim), "it has ended before")
	ended := b.command("describe", "low")
	assert.Contains(t, ended, "Reason: Preempting")
	assert.Contains(t, ended, "Warning Preempting")
	assert.Contains(t, ended, "Preempted in order to admit critical pod")
	assert.Contains(t, ended, "Pod was preempted by Kubelet to accommodate a critical pod.")
}
