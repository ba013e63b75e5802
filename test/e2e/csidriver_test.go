package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kubeletkit/kubeletkit/internal/csidriver"
	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// The stand-in for drivers as a process: it ends by a fault after its work, is killed, and goes on each time.
func TestCSIDriverProcess(t *testing.T) {
	Need(t, "ip")
	ns, err := NewNetNS()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, ns.Close()) })
	dir := sharedDir(t)
	d := StartCSIDriver(t, ns, dir, "-registry", filepath.Join(dir, "registry"), "-volume", "v=1048576",
		"-controller-capabilities", "", "-node-id", "n", "-max-volumes", "5", "-topology", "zone=a")
	assert.FileExists(t, filepath.Join(dir, "registry", csidriver.DefaultName+"-reg.sock"))
	conn, err := grpc.NewClient("unix://"+d.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	node := csi.NewNodeClient(conn)
	stage := &csi.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: filepath.Join(dir, "staging"),
		Secrets: map[string]string{"key": "secret"}, VolumeCapability: &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}}
	require.NoError(t, os.Mkdir(stage.StagingTargetPath, 0o755))
	_, err = d.Inject(t.Context(), csidriver.Fault{Method: "NodeStageVolume", Exit: true})
	require.NoError(t, err)
	_, err = node.NodeStageVolume(t.Context(), stage)
	require.Error(t, err)
	select {
	case <-d.Ended():
	case <-time.After(time.Minute):
		t.Fatal("the driver has not ended")
	}
	d.Start(t)
	_, err = node.NodeStageVolume(t.Context(), stage, grpc.WaitForReady(true))
	require.NoError(t, err)
	d.Kill(t)
	d.Start(t)
	_, err = node.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: "v",
		StagingTargetPath: stage.StagingTargetPath}, grpc.WaitForReady(true))
	require.NoError(t, err)
	calls, err := d.Calls(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, csidriver.Count(calls, "NodeStageVolume"))
	assert.Equal(t, stage.Secrets, calls[0].Request.(*csi.NodeStageVolumeRequest).Secrets)
}
