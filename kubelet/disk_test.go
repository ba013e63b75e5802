package kubelet

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
)

// What is on the disk is listed, with its owner, and what would be removed.
func TestDisk(t *testing.T) {
	b := newBench(t)
	b.put("web", "i")
	b.start()
	b.await("web-n 1/1 Running", "pods")
	var list control.Disk
	require.NoError(t, json.Unmarshal([]byte(b.command("gc", "--dry-run", "--all", "-o", "json")), &list),
		"%s", b.command("gc", "--dry-run", "--all", "-o", "json"))
	find := func(kind, name string) (found []control.DiskItem) {
		for _, item := range list.Items {
			if item.Kind == kind && (name == "" || item.Name == name) {
				found = append(found, item)
			}
		}
		return found
	}
	require.Len(t, find("container", ""), 1)
	assert.Contains(t, find("container", "")[0].Owner, "container c of pod default/web-n(")
	assert.Equal(t, "it runs", find("container", "")[0].KeptBy)
	assert.Len(t, find("sandbox", ""), 1)
	assert.NotEmpty(t, find("image", ""))
	require.Len(t, find("pod", ""), 1)
	assert.Contains(t, find("pod", "")[0].Owner, "pod default/web-n(")
	require.NotEmpty(t, find("agent", ""))
	for _, item := range list.Items {
		assert.NotEqual(t, item.KeptBy == "", item.Removal == "", "%+v", item)
	}
}
