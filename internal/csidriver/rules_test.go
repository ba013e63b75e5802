package csidriver

import (
	"os"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

func TestViolations(t *testing.T) {
	attached := Settings{NodeID: "n"}
	for name, test := range map[string]struct {
		settings Settings
		do       func(c *client)
		want     string // "" is none
	}{
		"publish before stage": {nodeOnly, func(c *client) {
			c.code(codes.FailedPrecondition, c.publish("one", mounted(writer), false))
		}, "NodePublishVolume: volume v: it is not staged"},
		"no staging path": {nodeOnly, func(c *client) {
			require.NoError(c.t, os.Remove(c.staging()))
			c.code(codes.FailedPrecondition, c.stage(mounted(writer)))
		}, "NodeStageVolume: volume v: the staging path DIR/staging is no directory"},
		"another staging path": {nodeOnly, func(c *client) {
			require.NoError(c.t, c.stage(mounted(writer)))
			_, err := c.NodePublishVolume(c.t.Context(), &csi.NodePublishVolumeRequest{VolumeId: "v",
				TargetPath: c.target("one"), VolumeCapability: mounted(writer), StagingTargetPath: "/other"})
			c.code(codes.FailedPrecondition, err)
		}, `NodePublishVolume: volume v: it is staged at DIR/staging, not at "/other"`},
		"unstage before unpublish": {nodeOnly, func(c *client) {
			require.NoError(c.t, c.stage(mounted(writer)))
			require.NoError(c.t, c.publish("one", mounted(writer), false))
			c.code(codes.FailedPrecondition, c.unstage())
		}, "NodeUnstageVolume: volume v: it is published at [DIR/one]"},
		"two writers of a single one": {nodeOnly, func(c *client) {
			require.NoError(c.t, c.stage(mounted(singleWriter)))
			require.NoError(c.t, c.publish("one", mounted(singleWriter), false))
			c.code(codes.FailedPrecondition, c.publish("two", mounted(singleWriter), false))
		}, "NodePublishVolume: volume v: it has one writer, and is published at [DIR/one]"},
		"two publications": {nodeOnly, func(c *client) {
			require.NoError(c.t, c.stage(mounted(writer)))
			require.NoError(c.t, c.publish("one", mounted(writer), false))
			require.NoError(c.t, c.publish("two", mounted(writer), false))
		}, ""},
		"no directory for the target": {nodeOnly, func(c *client) {
			require.NoError(c.t, c.stage(mounted(writer)))
			c.code(codes.FailedPrecondition, c.publish("no/one", mounted(writer), false))
		}, "NodePublishVolume: volume v: the parent of the target path DIR/no/one is no directory"},
		"stage before attach": {attached, func(c *client) {
			c.code(codes.FailedPrecondition, c.stage(mounted(writer)))
		}, "NodeStageVolume: volume v: it is not attached to node n"},
		"without the publish context": {attached, func(c *client) {
			c.attach("n")
			c.context = nil
			c.code(codes.FailedPrecondition, c.stage(mounted(writer)))
		}, `NodeStageVolume: volume v: the publish context has attached-to="", not "n"`},
		"detach before unstage": {attached, func(c *client) {
			c.attach("n")
			require.NoError(c.t, c.stage(mounted(writer)))
			_, err := c.ControllerUnpublishVolume(c.t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: "v"})
			c.code(codes.FailedPrecondition, err)
		}, "ControllerUnpublishVolume: volume v: it is in use on node n"},
		"a mode that the node has not": {Settings{NodeCapabilities: []csi.NodeServiceCapability_RPC_Type{},
			ControllerCapabilities: nodeOnly.ControllerCapabilities}, func(c *client) {
			c.code(codes.InvalidArgument, c.publish("one", mounted(singleWriter), false))
		}, "NodePublishVolume: volume v: the node has no capability for SINGLE_NODE_SINGLE_WRITER"},
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := Start(t, Options{Settings: test.settings, Links: true})
			require.NoError(t, d.AddVolume("v", 1<<20))
			c := connect(t, d)
			require.NoError(t, os.Mkdir(c.staging(), 0o755))
			test.do(c)
			var want []string
			if test.want != "" {
				want = []string{test.want}
			}
			assert.Equal(t, want, c.withoutDir(d.Violations()))
		})
	}
}

// A volume whose staging was answered with an error is not staged for the CO.
func TestStageThatFails(t *testing.T) {
	d, _ := Start(t, Options{Settings: nodeOnly, Links: true})
	require.NoError(t, d.AddVolume("v", 1<<20))
	c := connect(t, d)
	require.NoError(t, os.Mkdir(c.staging(), 0o755))
	d.Inject(Fault{Method: "NodeStageVolume", Times: 1, Late: true, Code: codes.Internal})
	c.code(codes.Internal, c.stage(mounted(writer)))
	c.code(codes.FailedPrecondition, c.publish("one", mounted(writer), false))
	assert.Equal(t, []string{"NodePublishVolume: volume v: it is not staged"}, d.Violations())
	require.NoError(t, c.stage(mounted(writer)))
	d.Inject(Fault{Method: "NodeStageVolume", Times: 1, Code: codes.Internal})
	c.code(codes.Internal, c.stage(mounted(writer)))
	require.NoError(t, c.publish("one", mounted(writer), false), "one has succeeded before")
	assert.Len(t, d.Violations(), 1)
}

func TestControllerAttaches(t *testing.T) {
	d, _ := Start(t, Options{Settings: Settings{NodeID: "n", MaxVolumes: 1}, Nodes: []string{"m"}, Links: true})
	c := connect(t, d)
	create := &csi.CreateVolumeRequest{Name: "data", VolumeCapabilities: []*csi.VolumeCapability{mounted(writer)}}
	one, err := c.CreateVolume(t.Context(), create)
	require.NoError(t, err)
	create.Name = "other"
	other, err := c.CreateVolume(t.Context(), create)
	require.NoError(t, err)
	attach := func(v *csi.Volume, node string) error {
		_, err := c.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: v.VolumeId,
			NodeId: node, VolumeCapability: mounted(writer)})
		return err
	}
	require.NoError(t, attach(one.Volume, "n"))
	require.NoError(t, attach(one.Volume, "n"))
	c.code(codes.FailedPrecondition, attach(one.Volume, "m"))
	c.code(codes.NotFound, attach(one.Volume, "l"))
	c.code(codes.ResourceExhausted, attach(other.Volume, "n"))
	d.Update(func(s *Settings) { s.MaxVolumes = 2 })
	require.NoError(t, attach(other.Volume, "n"))
	assert.Empty(t, d.Violations())
}
