package scsi_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/node/volume"
	kruntime "github.com/kubeletkit/kubeletkit/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// claims are bound to one volume each, which has the name of the claim.
type claims map[string]*v1.PersistentVolume

func (claims) Claim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	claim := &v1.PersistentVolumeClaim{}
	claim.Namespace, claim.Name, claim.UID = namespace, name, types.UID(name)
	claim.Spec.VolumeName, claim.Status.Phase = name, v1.ClaimBound
	return claim, nil
}

func (claims) UpdateStatus(_ context.Context, old, _ *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	return old, volume.ErrUnsupported
}

func (c claims) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	pv := c[name].DeepCopy()
	pv.Spec.ClaimRef = &v1.ObjectReference{UID: types.UID(name)}
	return pv, nil
}

// secretOf has the data for the secret default/chap.
func secretOf(data map[string][]byte) func(context.Context, string, string) (*v1.Secret, error) {
	return func(_ context.Context, namespace, name string) (*v1.Secret, error) {
		if namespace != "default" || name != "chap" {
			return nil, fmt.Errorf("no secret %s/%s", namespace, name)
		}
		return &v1.Secret{Data: data}, nil
	}
}

// agent is one with pods in a directory.
type agent struct {
	*testing.T
	m       *volume.Reconciler
	rootDir string
}

func newAgent(t *testing.T, rootDir string, p volume.PersistentPlugin, pvs ...*v1.PersistentVolume) *agent {
	t.Helper()
	all := claims{}
	for _, pv := range pvs {
		all[pv.Name] = pv
	}
	m, err := volume.New(volume.Options{Persistent: []volume.PersistentPlugin{p}, Sources: volume.Sources{Claims: all}})
	require.NoError(t, err)
	return &agent{t, m, rootDir}
}

func (a *agent) dir(pod string) string { return filepath.Join(a.rootDir, "pods", "uid-"+pod) }

// setUp sets up a volume for a pod: one in its spec, or the claim of a persistent volume.
func (a *agent) setUp(ctx context.Context, pod string, v any) (kruntime.Volume, error) {
	in := v1.Volume{Name: "data"}
	block := false
	switch v := v.(type) {
	case *v1.ISCSIVolumeSource:
		in.ISCSI = v
	case *v1.FCVolumeSource:
		in.FC = v
	case *v1.PersistentVolume:
		in.PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{ClaimName: v.Name}
		block = v.Spec.VolumeMode != nil && *v.Spec.VolumeMode == v1.PersistentVolumeBlock
	}
	of := testpod.New(pod, testpod.Namespace("default"), testpod.UID(types.UID("uid-"+pod)), testpod.Containers("main"),
		testpod.Volumes(in))
	if block {
		of.Spec.Containers[0].VolumeMounts = nil
		of.Spec.Containers[0].VolumeDevices = []v1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
	}
	ready, err := a.m.SetUp(ctx, of, a.dir(pod))
	return ready["data"], err
}

func (a *agent) mustSetUp(pod string, v any) string {
	a.Helper()
	ready, err := a.setUp(a.Context(), pod, v)
	require.NoError(a, err)
	return ready.HostPath
}

func (a *agent) remove(pod string) {
	a.Helper()
	require.NoError(a, a.m.Remove(a.Context(), kruntime.PodRef{UID: types.UID("uid-" + pod)}, a.dir(pod)))
	require.NoDirExists(a, a.dir(pod))
}
