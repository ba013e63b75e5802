package volume

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

// killed is an agent that is killed before one of its steps: none happens from then on.
type killed struct {
	left          int
	last          string
	wrote, ending bool
}

func (k *killed) step(step string) error {
	if k.left--; k.left <= 0 {
		if k.left == 0 {
			k.last = step
		}
		return errKilled
	}
	k.wrote = k.wrote || step == podWrites
	k.ending = k.ending || step == podEnds
	return nil
}

// listed is what is below a directory: the mode, the time, the owners and the content of each file.
func listed(t *testing.T, dir string) map[string]any {
	t.Helper()
	all := map[string]any{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		uid, gid := ownerOf(info)
		var data []byte
		if info.Mode().IsRegular() && info.Size() < 1<<20 { // a file on huge pages cannot be read
			data, err = os.ReadFile(path)
		}
		all[path] = []any{info.Mode(), info.ModTime(), uid, gid, string(data)}
		return err
	}))
	return all
}

// An agent that may not mount sets volumes and sub-paths up, takes them down, and ends at each
// step. The next one finds from disk what is there, completes or removes it, loses nothing that the
// pod has written, and touches nothing of another pod. TestKilled does the same with mounts.
func TestKilledAtEachStep(t *testing.T) {
	root := testenv.MemoryDir(t)
	other := newVictim(root, "other", false)
	other.plant(t)
	require.NoError(t, withoutMounts(func() error {
		m, err := other.agent("mine", nil)
		if err == nil {
			_, err = other.setUp(t.Context(), m)
		}
		return err
	}))
	volumes, disk := listed(t, other.dir), listed(t, other.disk)
	for _, complete := range []bool{false, true} {
		for n := 1; ; n++ {
			v := newVictim(root, "victim", false)
			v.plant(t)
			k := &killed{left: n}
			err := withoutMounts(func() error { return v.live(t.Context(), k.step) })
			if k.left > 0 {
				require.NoError(t, err)
				assert.Greater(t, n, 80)
				t.Logf("%d steps", n-1)
				break
			}
			require.ErrorIs(t, err, errKilled)
			m, err := v.agent("3", nil)
			require.NoError(t, err)
			if complete {
				var ready map[string]kruntime.Volume
				require.NoError(t, withoutMounts(func() (err error) {
					ready, err = v.setUp(t.Context(), m)
					return err
				}))
				v.isReady(t, ready, "3", k.wrote && !k.ending)
			}
			require.NoError(t,
				withoutMounts(func() error { return m.Remove(t.Context(), kruntime.PodRef{UID: v.pod.UID}, v.dir) }))
			v.isGone(t)
			assert.Equal(t, disk, listed(t, other.disk))
			assert.Equal(t, volumes, listed(t, other.dir))
			require.NoError(t, os.RemoveAll(v.disk))
			if t.Failed() {
				t.Fatalf("killed before step %d: %s", n, k.last)
			}
			if complete && k.ending {
				break // a pod that has ended is not set up again
			}
		}
	}
}
