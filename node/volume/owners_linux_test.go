package volume_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/node/volume"
)

// The directory has the mode that the pod requests if the option is set, whatever the medium is. Its fsGroup has all
// rights. In memory, a directory that everybody may write to has the sticky bit.
func TestEmptyDirModes(t *testing.T) {
	for name, tc := range map[string]struct {
		mode  *int32
		group bool
		off   bool
		want  os.FileMode // on disk
		// inMemory is what differs there.
		inMemory os.FileMode
	}{
		"default":         {want: 0o777, inMemory: os.ModeSticky},
		"off":             {mode: ptr.To[int32](0o700), off: true, want: 0o777, inMemory: os.ModeSticky},
		"private":         {mode: ptr.To[int32](0o700), want: 0o700},
		"nothing":         {mode: ptr.To[int32](0), want: 0},
		"sticky":          {mode: ptr.To[int32](0o1755), want: 0o755 | os.ModeSticky},
		"everybody":       {mode: ptr.To[int32](0o777), want: 0o777, inMemory: os.ModeSticky},
		"with an fsGroup": {mode: ptr.To[int32](0o700), group: true, want: 0o770 | os.ModeSetgid},
	} {
		for _, medium := range []v1.StorageMedium{v1.StorageMediumDefault, v1.StorageMediumMemory} {
			t.Run(name+string(medium), func(t *testing.T) {
				want := tc.want | os.ModeDir
				if medium == v1.StorageMediumMemory {
					needsMount(t)
					want |= tc.inMemory
				}
				m, err := volume.New(volume.Options{EmptyDirModes: !tc.off})
				require.NoError(t, err)
				p, dir := pod(emptyDir("v", v1.EmptyDirVolumeSource{Mode: tc.mode, Medium: medium})),
					filepath.Join(t.TempDir(), "u1")
				if tc.group {
					p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To(int64(os.Getgid()))}
				}
				cleanUp(t, m, p, dir)
				for range 2 {
					ready, err := m.SetUp(t.Context(), p, dir)
					require.NoError(t, err)
					info, err := os.Stat(ready["v"].HostPath)
					require.NoError(t, err)
					assert.Equal(t, want, info.Mode())
				}
			})
		}
	}
}

// A file belongs to its own user, else to that of the volume, else to that of this process, if the option is set.
// Only that user may read a token or a certificate.
func TestFileOwners(t *testing.T) {
	needsMount(t)
	h := newHeld()
	h.maps["default/conf"] = &v1.ConfigMap{Data: map[string]string{"a": "1"}}
	h.secrets["default/db"] = &v1.Secret{Data: map[string][]byte{"a": []byte("1")}}
	user, own := ptr.To[int64](1234), ptr.To[int64](4321)
	items := []v1.KeyToPath{{Key: "a", Path: "default"}, {Key: "a", Path: "own", User: own}}
	fields := []v1.DownwardAPIVolumeFile{{Path: "default"}, {Path: "own", User: own}}
	for i := range fields {
		fields[i].FieldRef = &v1.ObjectFieldSelector{FieldPath: "metadata.name"}
	}
	source := func(s v1.VolumeProjection) v1.VolumeSource {
		return v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{DefaultUser: user,
			Sources: []v1.VolumeProjection{s}}}
	}
	db := v1.LocalObjectReference{Name: "db"}
	conf := v1.LocalObjectReference{Name: "conf"}
	for name, tc := range map[string]struct {
		volume v1.VolumeSource
		want   map[string]int64 // by file
		mode   os.FileMode
		// runAs is the user of the files if the option is not set.
		runAs int64
	}{
		"config map, all keys": {v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: conf,
			DefaultUser: user}}, map[string]int64{"a": *user}, 0o644, 0},
		"config map": {v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: conf, Items: items}},
			map[string]int64{"default": 0, "own": *own}, 0o644, 0},
		"secret": {v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "db", Items: items, DefaultUser: user}},
			map[string]int64{"default": *user, "own": *own}, 0o644, 0},
		"fields": {v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: fields, DefaultUser: user}},
			map[string]int64{"default": *user, "own": *own}, 0o644, 0},
		"projected secret": {source(v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: db,
			Items: items}}), map[string]int64{"default": *user, "own": *own}, 0o644, 0},
		"projected config map": {source(v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{
			LocalObjectReference: conf}}), map[string]int64{"a": *user}, 0o644, 0},
		"projected fields": {source(v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: fields}}),
			map[string]int64{"default": *user, "own": *own}, 0o644, 0},
		"token": {source(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "t"}}),
			map[string]int64{"t": *user}, 0o600, 1000},
		"token with its own": {source(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{
			Path: "t", User: own}}), map[string]int64{"t": *own}, 0o600, 1000},
		"bundle": {source(v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{
			Name: ptr.To("b"), Path: "t", User: own}}), map[string]int64{"t": *own}, 0o600, 1000},
	} {
		for _, on := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				m, err := volume.New(volume.Options{FileOwners: on, Sources: volume.Sources{Objects: h,
					Tokens: &minted{token: "t1"}, TrustBundles: anchors{}}})
				require.NoError(t, err)
				p, dir := pod(v1.Volume{Name: "v", VolumeSource: tc.volume}), filepath.Join(t.TempDir(), "u1")
				p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: ptr.To[int64](1000)}
				cleanUp(t, m, p, dir)
				ready, err := m.SetUp(t.Context(), p, dir)
				require.NoError(t, err)
				for file, want := range tc.want {
					path := filepath.Join(ready["v"].HostPath, file)
					if !on {
						want = tc.runAs
					}
					uid, _ := ownerOf(t, path)
					assert.Equal(t, want, int64(uid), "%s, %t", file, on)
					info, err := os.Stat(path)
					require.NoError(t, err)
					assert.Equal(t, tc.mode, info.Mode(), file)
				}
			})
		}
	}
}
