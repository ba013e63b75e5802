package gc_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/gc/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// imageOf makes an image that was seen first and used last the given number of minutes ago;
// a negative number means that no use is known.
func imageOf(id string, size int64, seen, used int) gc.Image {
	i := gc.Image{Image: runtime.Image{ID: id, Size: size}, FirstSeen: now.Add(-time.Duration(seen) * time.Minute)}
	if used >= 0 {
		i.LastUsed = now.Add(-time.Duration(used) * time.Minute)
	}
	return i
}

func pinned(i gc.Image) gc.Image { i.Pinned = true; return i }

func usedBy(i gc.Image, uses ...runtime.ImageUse) gc.Image { i.UsedBy = uses; return i }

func TestPlanImages(t *testing.T) {
	policy := gc.ImagePolicy{HighThresholdPercent: 85, LowThresholdPercent: 80, MinAge: 2 * time.Minute}
	aged := policy
	aged.MaxAge = time.Hour
	full := func(available int64) runtime.FsUsage {
		return runtime.FsUsage{CapacityBytes: 1000, AvailableBytes: available}
	}
	old := []gc.Image{imageOf("b", 30, 90, 20), imageOf("a", 30, 90, 30), imageOf("c", 30, 90, 10)}
	for _, tc := range []struct {
		name   string
		images []gc.Image
		policy gc.ImagePolicy
		fs     runtime.FsUsage
		goal   gc.ImageGoal
		free   int64
		want   []string
	}{
		{name: "below the high threshold", images: old, policy: policy, fs: full(160)},
		{name: "at the high threshold, down to the low one", images: old, policy: policy, fs: full(150), free: 50, want: []string{"a space", "b space"}},
		{name: "kubelet rounds the usage up", images: old, policy: policy, fs: full(159), free: 41, want: []string{"a space", "b space"}},
		{name: "one is enough", images: old, policy: policy, fs: full(150 - 0), goal: gc.ImagesToLowThreshold, free: 50, want: []string{"a space", "b space"}},
		{name: "between the thresholds, once begun", images: old, policy: policy, fs: full(180), goal: gc.ImagesToLowThreshold, free: 20, want: []string{"a space"}},
		{name: "at the low threshold", images: old, policy: policy, fs: full(200), goal: gc.ImagesToLowThreshold},
		{name: "not enough", images: old, policy: policy, fs: full(0), free: 200, want: []string{"a space", "b space", "c space"}},
		{name: "one that was never used comes first, and of these the oldest", policy: policy, fs: full(0), free: 200,
			images: []gc.Image{imageOf("used", 1, 90, 80), imageOf("new", 1, 3, -1), imageOf("old", 1, 60, -1)},
			want:   []string{"old space", "new space", "used space"}},
		{name: "what is pinned or used stays", policy: policy, fs: full(0), free: 200,
			images: []gc.Image{pinned(imageOf("p", 1, 90, -1)),
				usedBy(imageOf("u", 1, 90, 0), runtime.ImageUse{Container: "c", State: runtime.ContainerExited})}},
		{name: "what is young stays", policy: policy, fs: full(0), free: 200, images: []gc.Image{imageOf("young", 1, 1, -1), imageOf("two", 1, 2, -1)}, want: []string{"two space"}},
		{name: "100 percent disables", policy: gc.ImagePolicy{HighThresholdPercent: 100, LowThresholdPercent: 80}, images: old, fs: full(0)},
		{name: "what is too old goes without need", policy: aged, fs: full(900), images: []gc.Image{
			imageOf("used", 1, 300, 59), imageOf("unused", 1, 61, -1), imageOf("old", 1, 300, 61),
			imageOf("hour", 1, 300, 60), pinned(imageOf("p", 1, 300, 300)),
		}, want: []string{"unused age", "old age"}},
		{name: "and may be enough", policy: aged, fs: full(150), images: []gc.Image{imageOf("a", 20, 300, 10), imageOf("old", 20, 300, 61)}, want: []string{"old age"}},
		{name: "or not", policy: aged, fs: full(130), images: []gc.Image{imageOf("a", 20, 300, 10), imageOf("old", 20, 300, 61)}, free: 70, want: []string{"old age", "a space"}},
		{name: "all", policy: policy, fs: full(900), goal: gc.AllUnusedImages, images: append(old, imageOf("young", 1, 1, -1), pinned(imageOf("p", 1, 90, -1))),
			want: []string{"a space", "b space", "c space"}},
		{name: "all, also if disabled", policy: gc.ImagePolicy{HighThresholdPercent: 100}, goal: gc.AllUnusedImages, images: old, want: []string{"a space", "b space", "c space"}},
		{name: "the size of the disk is not known", policy: aged, images: []gc.Image{imageOf("a", 20, 300, 10), imageOf("old", 20, 300, 61)}, want: []string{"old age"}},
		{name: "more is available than there is", policy: policy, fs: full(2000), images: old},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := gc.PlanImages(gc.ImageInput{Images: tc.images, Fs: tc.fs, Policy: tc.policy,
				Now: now, Goal: tc.goal})
			var got []string
			for _, r := range plan.Remove {
				got = append(got, fmt.Sprintf("%s %s", r.ID, r.Reason))
			}
			assert.Equal(t, tc.want, got)
			assert.Equal(t, tc.free, plan.Free)
		})
	}
}

func TestKeptBy(t *testing.T) {
	policy := gc.ImagePolicy{MinAge: 2 * time.Minute}
	dead := runtime.ImageUse{Pod: ref("1"), Container: "init", State: runtime.ContainerExited}
	running := runtime.ImageUse{Pod: ref("2"), Container: "main", State: runtime.ContainerRunning}
	for want, image := range map[string]gc.Image{
		"":                  imageOf("a", 1, 3, -1),
		"pinned":            pinned(imageOf("a", 1, 1, -1)),
		"younger than 2m0s": imageOf("a", 1, 1, -1),
		"used by exited container init of pod " + ref("1").String(): usedBy(imageOf("a", 1, 3, 0),
			dead),
		"used by running container main of pod " + ref("2").String() + " and 1 more": usedBy(imageOf("a", 1, 3, 0),
			dead, running),
		"used by pod " + ref("2").String() + ", which starts": usedBy(imageOf("a", 1, 3, 0),
			runtime.ImageUse{Pod: ref("2")}),
		"used by running container nerd": usedBy(imageOf("a", 1, 3, 0), runtime.ImageUse{Container: "nerd", State: runtime.ContainerRunning}),
	} {
		assert.Equal(t, want, image.KeptBy(policy, now))
	}
}

// The defaults and the judgement are those of kubelet.
func TestImagePolicy(t *testing.T) {
	for _, tc := range []struct {
		policy gc.ImagePolicy
		want   gc.ImagePolicy
		err    string
	}{
		{want: gc.ImagePolicy{HighThresholdPercent: 85, LowThresholdPercent: 80, MinAge: 2 * time.Minute}},
		{policy: gc.ImagePolicy{HighThresholdPercent: 1, LowThresholdPercent: -1, MinAge: -1, MaxAge: 1}, want: gc.ImagePolicy{HighThresholdPercent: 1, MaxAge: 1}},
		{policy: gc.ImagePolicy{HighThresholdPercent: 101}, err: "HighThresholdPercent 101: must be between 0 and 100"},
		{policy: gc.ImagePolicy{HighThresholdPercent: -1}, err: "HighThresholdPercent -1: must be between 0 and 100"},
		{policy: gc.ImagePolicy{LowThresholdPercent: 101}, err: "LowThresholdPercent 101: must be between 0 and 100"},
		{policy: gc.ImagePolicy{LowThresholdPercent: 85}, err: "LowThresholdPercent 85: must be less than HighThresholdPercent 85"},
		{policy: gc.ImagePolicy{MaxAge: -1}, err: "MaxAge -1ns: must not be negative"},
		{policy: gc.ImagePolicy{MaxAge: 2 * time.Minute}, err: "MaxAge 2m0s: must be more than MinAge 2m0s"},
	} {
		var got gc.ImagePolicy
		c, err := gc.NewImageGC(fake.NewImages(1000), gc.ImageOptions{ImagePolicy: tc.policy,
			Plan: func(in gc.ImageInput) gc.ImagePlan {
				got = in.Policy
				return gc.ImagePlan{}
			}})
		if tc.err != "" {
			assert.ErrorContains(t, err, tc.err)
			continue
		}
		require.NoError(t, err)
		require.NoError(t, c.GarbageCollect(t.Context()))
		assert.Equal(t, tc.want, got)
	}
	_, err := gc.NewImageGC(nil, gc.ImageOptions{})
	require.ErrorContains(t, err, "required")
	assert.True(t, gc.ImagePolicy{HighThresholdPercent: 100}.Disabled())
	assert.False(t, gc.ImagePolicy{HighThresholdPercent: 100, MaxAge: time.Hour}.Disabled())
	assert.False(t, gc.ImagePolicy{HighThresholdPercent: 99}.Disabled())
}
