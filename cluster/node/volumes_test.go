package node

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Volumes in use are reported at once, sorted; while they are not known, those of the node object stay.
func TestVolumesInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := existingNode()
		old.Status.VolumesInUse = []v1.UniqueVolumeName{"of an earlier agent"}
		s := newScene(t, old)
		s.versions = true
		var (
			mu      sync.Mutex
			volumes []v1.UniqueVolumeName
			known   bool
		)
		use := func(list ...v1.UniqueVolumeName) {
			mu.Lock()
			defer mu.Unlock()
			volumes, known = list, true
		}
		s.opts.VolumesInUse = func() ([]v1.UniqueVolumeName, bool) {
			mu.Lock()
			defer mu.Unlock()
			return volumes, known
		}
		s.start()
		s.after(time.Minute)
		assert.Equal(t, old.Status.VolumesInUse, s.object().Status.VolumesInUse, "not known")

		use("b", "a", "b")
		s.node.Update()
		s.after(time.Second)
		assert.Equal(t, []v1.UniqueVolumeName{"a", "b"}, s.object().Status.VolumesInUse)
		assert.Equal(t, []v1.UniqueVolumeName{"a", "b"}, s.node.Current().Status.VolumesInUse)

		s.take()
		s.node.Update()
		s.after(time.Second)
		assert.NotContains(t, s.take(), "patch nodes", "nothing has changed")

		use()
		s.node.Update()
		s.after(time.Second)
		assert.Empty(t, s.object().Status.VolumesInUse)
		require.NoError(t, s.stop())
	})
}

// A new node object has the volumes that are in use.
func TestVolumesInUseOfANewNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.opts.VolumesInUse = func() ([]v1.UniqueVolumeName, bool) { return []v1.UniqueVolumeName{"a"}, true }
		s.start()
		s.after(time.Second)
		assert.Equal(t, []v1.UniqueVolumeName{"a"}, s.object().Status.VolumesInUse)
		require.NoError(t, s.stop())
	})
}

// What a controller attaches is delivered at once, and reports leave it as it is.
func TestVolumesAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		s.after(time.Minute)
		var (
			mu       sync.Mutex
			attached []v1.AttachedVolume
		)
		s.node.OnChange(func(node *v1.Node) {
			mu.Lock()
			defer mu.Unlock()
			attached = node.Status.VolumesAttached
		})
		node := s.object().DeepCopy()
		node.Status.VolumesAttached = []v1.AttachedVolume{{Name: "a"}}
		node.ResourceVersion = "5000"
		_, err := s.api.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
		require.NoError(t, err)
		synctest.Wait() // no time passes
		mu.Lock()
		assert.Equal(t, node.Status.VolumesAttached, attached)
		mu.Unlock()
		s.after(10 * time.Minute)
		assert.Equal(t, node.Status.VolumesAttached, s.object().Status.VolumesAttached)
		require.NoError(t, s.stop())
	})
}
