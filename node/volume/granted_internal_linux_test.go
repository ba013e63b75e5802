package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// accessTo returns the mode, the owner and the group of a file.
func accessTo(t *testing.T, name string) string {
	t.Helper()
	info, err := os.Stat(name)
	require.NoError(t, err)
	st := info.Sys().(*syscall.Stat_t)
	return fmt.Sprint(info.Mode(), " ", st.Uid, " ", st.Gid)
}

// The same content with another mode, owner or group is written, once.
func TestChangedModesAndOwners(t *testing.T) {
	dir, own := t.TempDir(), fmt.Sprint(os.Getuid(), " ", os.Getgid())
	write := func(a access, f file, want string) {
		t.Helper()
		w, err := openWriter(dir, a)
		require.NoError(t, err)
		defer func() { _ = w.root.Close() }()
		changed, err := w.write(payload{"f": f})
		require.NoError(t, err)
		assert.True(t, changed)
		assert.Equal(t, want, accessTo(t, filepath.Join(dir, "f")))
		w.before = func(step string) error { return errors.New("unexpected: " + step) }
		changed, err = w.write(payload{"f": f})
		require.NoError(t, err, "nothing has changed")
		assert.False(t, changed)
	}
	none := access{0o777, -1}
	group := func(gid int) access { return access{0o777 | fs.ModeSetgid, gid} }
	write(none, file{mode: 0o644}, "-rw-r--r-- "+own)
	write(none, file{mode: 0o600}, "-rw------- "+own)
	if os.Getuid() != 0 {
		t.Skip("the rest needs root")
	}
	write(none, file{mode: 0o600, owner: new(int64(1000))}, "-rw------- 1000 0")
	write(none, file{mode: 0o600, owner: new(int64(1001))}, "-rw------- 1001 0")
	write(none, file{mode: 0o600}, "-rw------- 0 0")
	write(group(2000), file{mode: 0o600}, "-rw-r----- 0 2000")
	write(group(2001), file{mode: 0o600}, "-rw-r----- 0 2001")
	write(none, file{mode: 0o600}, "-rw------- 0 0")
}

// A pod that gets another fsGroup has its files in that group, also if its volume was found up
// to date before.
func TestChangedFSGroup(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("giving a file to another group needs root")
	}
	src := Sources{Objects: one{&v1.ConfigMap{Data: map[string]string{"a": "1"}}}, seen: newSeen()}
	src.seen.settled = -time.Hour // nothing changes the files meanwhile
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u"}, Spec: v1.PodSpec{
		SecurityContext: &v1.PodSecurityContext{},
		Volumes: []v1.Volume{{Name: "v",
			VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}}},
	}}
	place := PlaceOf(filepath.Join(t.TempDir(), "u"), ConfigMap{}.Name(), "v")
	for _, gid := range []int64{2000, 2001} {
		p.Spec.SecurityContext.FSGroup = &gid
		for range 3 {
			_, err := ConfigMap{src}.SetUp(t.Context(), SetUpRequest{Pod: p, Volume: &p.Spec.Volumes[0], Place: place})
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprint("-rw-r--r-- 0 ", gid), accessTo(t, filepath.Join(place.Dir, "a")))
		}
	}
}
