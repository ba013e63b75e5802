package volume

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// The set-up of a host path or a claim ends with its context also if the file system does not
// answer. Each path has one check under way, however often it is begun.
func TestPathsThatDoNotAnswer(t *testing.T) {
	disk, other := t.TempDir(), t.TempDir()
	for name, plugin := range map[string]func(c *pathChecks) Plugin{
		"hostPath": func(c *pathChecks) Plugin { return HostPath{c} },
		"claim":    func(c *pathChecks) Plugin { return Claim{Sources{checks: c}} },
	} {
		t.Run(name, func(t *testing.T) {
			stateDir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				checks, answer, calls := newPathChecks(), make(chan struct{}), 0
				checks.before = func(path string) {
					if path == disk {
						calls++
						<-answer
					}
				}
				p := plugin(checks)
				setUp := func(ctx context.Context, path string) error {
					v := v1.Volume{Name: "v"}
					v.HostPath = &v1.HostPathVolumeSource{Path: path, Type: ptr.To(v1.HostPathDirectory)}
					require.NoError(t, boundVolume{Path: path, Local: true}.write(filepath.Join(stateDir, "volume"),
						nil))
					_, err := p.SetUp(ctx, SetUpRequest{Pod: &v1.Pod{}, Volume: &v, Place: Place{StateDir: stateDir}})
					return err
				}
				for range 3 {
					ctx, cancel := context.WithCancelCause(t.Context())
					done := make(chan error)
					go func() { done <- setUp(ctx, disk) }()
					synctest.Wait()
					require.NoError(t, setUp(t.Context(), other))
					cancel(assert.AnError)
					require.ErrorIs(t, <-done, assert.AnError)
				}
				assert.Equal(t, 1, calls)
				close(answer)
				require.NoError(t, setUp(t.Context(), disk))
				assert.Equal(t, 2, calls)
			})
		})
	}
}

// A check that was left behind makes nothing: its pod may be gone.
func TestACheckThatWasLeftBehindMakesNothing(t *testing.T) {
	for _, typ := range []v1.HostPathType{v1.HostPathDirectoryOrCreate, v1.HostPathFileOrCreate} {
		path := filepath.Join(t.TempDir(), "made")
		synctest.Test(t, func(t *testing.T) {
			checks, answer := newPathChecks(), make(chan struct{})
			checks.before = func(string) { <-answer }
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan error)
			go func() {
				v := v1.Volume{Name: "v"}
				v.HostPath = &v1.HostPathVolumeSource{Path: path, Type: &typ}
				_, err := HostPath{checks}.SetUp(ctx, SetUpRequest{Pod: &v1.Pod{}, Volume: &v,
					Place: Place{StateDir: t.TempDir()}})
				done <- err
			}()
			synctest.Wait()
			cancel(assert.AnError)
			require.ErrorIs(t, <-done, assert.AnError)
			close(answer)
			synctest.Wait()
			_, err := os.Lstat(path)
			require.ErrorIs(t, err, os.ErrNotExist)
		})
	}
}
