package csidriver

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const singleWriter = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER

func mounted(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode}}
}

func block(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode}}
}

// client is a CO of one volume.
type client struct {
	csi.NodeClient
	csi.ControllerClient
	csi.IdentityClient
	t       *testing.T
	dir     string
	context map[string]string // of the publication by the controller
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return conn
}

func connect(t *testing.T, d *Driver) *client {
	conn := dial(t, d.Socket())
	dir := t.TempDir()
	t.Cleanup(func() { assert.NoError(t, d.LoseMounts()) })
	return &client{csi.NewNodeClient(conn), csi.NewControllerClient(conn), csi.NewIdentityClient(conn), t, dir, nil}
}

func (c *client) staging() string           { return filepath.Join(c.dir, "staging") }
func (c *client) target(name string) string { return filepath.Join(c.dir, name) }
func (c *client) code(want codes.Code, err error) {
	c.t.Helper()
	assert.Equal(c.t, want, status.Code(err), "%v", err)
}

func (c *client) stage(capability *csi.VolumeCapability) error {
	_, err := c.NodeStageVolume(c.t.Context(), &csi.NodeStageVolumeRequest{VolumeId: "v",
		StagingTargetPath: c.staging(), VolumeCapability: capability, PublishContext: c.context,
		Secrets: map[string]string{"key": "secret"}})
	return err
}

func (c *client) unstage() error {
	_, err := c.NodeUnstageVolume(c.t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: "v",
		StagingTargetPath: c.staging()})
	return err
}

func (c *client) publish(name string, capability *csi.VolumeCapability, readOnly bool) error {
	_, err := c.NodePublishVolume(c.t.Context(), &csi.NodePublishVolumeRequest{VolumeId: "v",
		StagingTargetPath: c.staging(), TargetPath: c.target(name), VolumeCapability: capability, Readonly: readOnly,
		PublishContext: c.context})
	return err
}

func (c *client) unpublish(name string) error {
	_, err := c.NodeUnpublishVolume(c.t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "v",
		TargetPath: c.target(name)})
	return err
}

// attach attaches the volume.
func (c *client) attach(node string) {
	response, err := c.ControllerPublishVolume(c.t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: "v",
		NodeId: node, VolumeCapability: mounted(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)})
	require.NoError(c.t, err)
	c.context = response.PublishContext
}

// withoutDir writes DIR for the directory of the client.
func (c *client) withoutDir(texts []string) (out []string) {
	for _, text := range texts {
		out = append(out, strings.ReplaceAll(text, c.dir, "DIR"))
	}
	return out
}
