package csidriver

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"
)

// A model of one volume: calls succeed if and only if the rules allow them, what the driver has published is there, and
// a driver that is started again goes on.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "csi")
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		opts := Options{Dir: filepath.Join(dir, "driver"), Socket: "unused", Settings: nodeOnly, Links: true}
		require.NoError(t, os.Mkdir(opts.Dir, 0o755))
		start := func() *Driver {
			d, err := New(opts)
			require.NoError(t, err)
			require.NoError(t, d.volumes.load())
			return d
		}
		d := start()
		require.NoError(t, d.AddVolume("v", 1<<20))
		staging := filepath.Join(dir, "staging")
		require.NoError(t, os.Mkdir(staging, 0o755))
		capability := mounted(rapid.SampledFrom([]csi.VolumeCapability_AccessMode_Mode{singleWriter, multiWriter}).
			Draw(t, "mode"))
		single := capability.AccessMode.Mode == singleWriter
		staged, published, violations := false, map[string]bool{}, 0
		answer := func(err error, allowed bool) {
			t.Helper()
			if allowed {
				require.NoError(t, err)
				return
			}
			require.Equal(t, codes.FailedPrecondition, status.Code(err))
			violations++
		}
		target := func() string {
			return filepath.Join(dir, fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "target")))
		}
		t.Repeat(map[string]func(*rapid.T){
			"stage": func(t *rapid.T) {
				_, err := node{d: d}.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: "v",
					StagingTargetPath: staging, VolumeCapability: capability})
				answer(err, true)
				require.NoError(t, d.volumes.answered("v"))
				staged = true
			},
			"unstage": func(t *rapid.T) {
				_, err := node{d: d}.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: "v",
					StagingTargetPath: staging})
				allowed := !staged || len(published) == 0
				answer(err, allowed)
				staged = staged && !allowed
			},
			"publish": func(t *rapid.T) {
				path := target()
				_, err := node{d: d}.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{VolumeId: "v",
					StagingTargetPath: staging, TargetPath: path, VolumeCapability: capability})
				allowed := staged && (published[path] || !single || len(published) == 0)
				answer(err, allowed)
				if allowed {
					published[path] = true
				}
			},
			"unpublish": func(t *rapid.T) {
				path := target()
				_, err := node{d: d}.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "v",
					TargetPath: path})
				answer(err, true)
				delete(published, path)
			},
			"restart": func(*rapid.T) { d = start() },
			"restart of the node": func(t *rapid.T) {
				// The CO unpublishes and unstages what it had, as an agent does that finds its directories.
				require.NoError(t, d.LoseMounts())
				d = start()
				for path := range published {
					_, err := node{d: d}.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{
						VolumeId: "v", TargetPath: path})
					require.NoError(t, err)
				}
				_, err := node{d: d}.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: "v",
					StagingTargetPath: staging})
				require.NoError(t, err)
				clear(published)
				staged = false
			},
			"": func(t *rapid.T) {
				assert.Len(t, d.Violations(), violations)
				assert.Equal(t, staged, d.placed(d.Data("v"), staging))
				for i := range 3 {
					path := filepath.Join(dir, fmt.Sprint(i))
					_, err := os.Lstat(path)
					assert.Equal(t, published[path], err == nil)
					assert.Equal(t, published[path], d.placed(d.Data("v"), path))
				}
			},
		})
	})
}
