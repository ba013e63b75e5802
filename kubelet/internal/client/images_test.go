package client

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/server"
)

func TestImages(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	image := func(name string, size int64, seen, used time.Duration) gc.Image {
		i := gc.Image{Image: runtime.Image{ID: "sha256:" + name, Tags: []string{name}, Size: size},
			FirstSeen: now.Add(-seen)}
		if used >= 0 {
			i.LastUsed = now.Add(-used)
		}
		return i
	}
	app, old, pause, young := image("app:1", 5<<30, time.Hour, 0), image("old\x1b:1", 3<<20, 48*time.Hour,
		47*time.Hour), image("pause:1", 600, time.Hour, -1), image("young:1", 2048, time.Minute, -1)
	app.UsedBy = []runtime.ImageUse{{Pod: runtime.PodRef{UID: "1", Namespace: "default", Name: "web"},
		Container: "main", State: runtime.ContainerRunning}}
	pause.Pinned = true
	in := gc.ImageInput{
		Images: []gc.Image{young, pause, old, app}, Now: now,
		Policy: gc.ImagePolicy{HighThresholdPercent: 85, LowThresholdPercent: 80, MinAge: 2 * time.Minute},
		Fs:     runtime.FsUsage{Mountpoint: "/var/lib/images", CapacityBytes: 10 << 30, AvailableBytes: 1 << 30},
	}
	n := &node{images: &gc.ImagePreview{Input: in, Plan: gc.PlanImages(in)}}
	root := serving(t, control.Handler(n, control.NewStop(), server.Options{}))
	run := func(args ...string) (string, error) {
		var out strings.Builder
		err := runCommand(t.Context(), append(args, "--root-dir", root), &out, &strings.Builder{})
		return out.String(), err
	}

	out, err := run("images")
	require.NoError(t, err)
	assert.Equal(t, strings.Join([]string{
		`IMAGE       SIZE      AGE   LAST USED   KEPT BY`,
		`app:1       5.0 GiB   60m   now         used by running container main of pod ` + app.UsedBy[0].Pod.String(),
		`old\x1b:1   3.0 MiB   2d    47h ago     -`,
		`pause:1     600 B     60m   never       pinned`,
		`young:1     2.0 KiB   60s   never       younger than 2m0s`,
	}, "\n")+"\n", out)

	out, err = run("gc", "--dry-run")
	require.NoError(t, err)
	assert.Equal(t, strings.Join([]string{
		`The file system of images, /var/lib/images, is used to 90% of 10.0 GiB; the thresholds are 85% and 80%.`,
		`IMAGE       SIZE      LAST USED   WHY`,
		`old\x1b:1   3.0 MiB   47h ago     space: usage has reached 85%`,
	}, "\n")+"\n", out)

	size := int64(3)
	n.disk = []control.DiskItem{{Kind: "logs", Name: "/var/log/pods/a", Owner: "pod default/a(u)", Bytes: &size,
		Removal: "its pod is gone"}}
	out, err = run("gc", "--dry-run", "-o", "json")
	require.NoError(t, err)
	assert.JSONEq(t,
		`{"items": [{"kind": "logs", "name": "/var/log/pods/a", "owner": "pod default/a(u)", "bytes": 3, "removal": "its pod is gone"}]}`, out)

	n.images.Plan = gc.ImagePlan{}
	out, err = run("gc", "--dry-run", "--all")
	require.NoError(t, err)
	assert.Contains(t, out, "No image would be removed.\n")

	n.images.Input.Policy.HighThresholdPercent = 100
	out, err = run("gc", "--dry-run")
	require.NoError(t, err)
	assert.Contains(t, out, "is used to 90% of 10.0 GiB; images are not removed for space.\n")

	out, err = run("gc")
	require.NoError(t, err)
	assert.Contains(t, out, "No image was removed")
	n.collected = control.Collected{Removed: []gc.Image{old}, Error: "Insufficient free disk space"}
	out, err = run("gc", "--all")
	require.EqualError(t, err, "Insufficient free disk space")
	assert.Equal(t, "removed old\\x1b:1 (3.0 MiB)\n", out)
}
